"""Webhooks: notifications of job state changes, and their deliveries."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from datalens_service.adapters.webhook_sender import check_target
from datalens_service.api.deps import After, Caller, Limit, ObjectId, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.schemas.common import Page
from datalens_service.api.schemas.webhooks import (
    DeliveryRead,
    WebhookChange,
    WebhookCreate,
    WebhookCreated,
    WebhookList,
    WebhookRead,
)
from datalens_service.store.access import webhooks

router = APIRouter(prefix="/v1/webhooks", route_class=StrictRoute, tags=["webhooks"])


@router.post("", summary="Create a webhook", responses=ok(201, "The webhook and its secret.", headers=("Location",)))
def create_webhook(
    request: Annotated[WebhookCreate, Body(openapi_examples=examples.WEBHOOKS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> WebhookCreated:
    """Messages are thin (a type, an instant, ids), signed as Standard Webhooks asks, and repeated for three days."""
    check_target(request.url, services.settings)
    hook, secret = webhooks.create(services.database, key.tenant_id, request.url, request.events)
    response.headers["Location"] = f"/v1/webhooks/{hook.id}"
    return WebhookCreated(webhook=WebhookRead.from_webhook(hook), secret=secret)


@router.get("", summary="List webhooks", responses=ok(200, "All webhooks of the tenant."))
def list_webhooks(services: ServicesDep, key: Caller) -> WebhookList:
    """The list begins with the oldest."""
    return WebhookList(
        items=[WebhookRead.from_webhook(hook) for hook in webhooks.list_webhooks(services.database, key.tenant_id)]
    )


@router.get("/{webhook_id}", summary="Read a webhook", responses=ok(200, "The webhook."))
def get_webhook(webhook_id: ObjectId, services: ServicesDep) -> WebhookRead:
    """The answer leaves out its secret."""
    return WebhookRead.from_webhook(webhooks.get(services.database, webhook_id))


@router.patch("/{webhook_id}", summary="Change a webhook", responses=ok(200, "The webhook as it is now."))
def update_webhook(
    webhook_id: ObjectId,
    request: Annotated[WebhookChange, Body(openapi_examples=examples.WEBHOOK_CHANGES)],
    services: ServicesDep,
) -> WebhookRead:
    """A disabled webhook gets no messages, also not later."""
    if request.url is not None:
        check_target(request.url, services.settings)
    return WebhookRead.from_webhook(
        webhooks.change(services.database, webhook_id, url=request.url, events=request.events, enabled=request.enabled)
    )


@router.delete(
    "/{webhook_id}", summary="Remove a webhook", responses=ok(204, "The webhook and its messages were deleted.")
)
def delete_webhook(webhook_id: ObjectId, services: ServicesDep) -> None:
    """Its pending messages are deleted with it."""
    webhooks.delete(services.database, webhook_id)


@router.post(
    "/{webhook_id}:test",
    summary="Send a test message",
    responses=ok(202, "The message; its delivery states the outcome."),
)
def test_webhook(webhook_id: ObjectId, services: ServicesDep) -> DeliveryRead:
    """Checks the address and your verification of signatures."""
    return DeliveryRead.from_delivery(webhooks.send_test(services.database, webhook_id))


@router.post(
    "/{webhook_id}:rotate-secret", summary="Replace the secret", responses=ok(200, "The webhook and its new secret.")
)
def rotate_webhook_secret(webhook_id: ObjectId, services: ServicesDep) -> WebhookCreated:
    """The new secret signs at once, pending messages as well: receivers that know only the old one refuse them."""
    hook, secret = webhooks.rotate_secret(services.database, webhook_id)
    return WebhookCreated(webhook=WebhookRead.from_webhook(hook), secret=secret)


@router.get(
    "/{webhook_id}/deliveries", summary="List deliveries", responses=ok(200, "A page of the list, newest first.")
)
def list_webhook_deliveries(
    webhook_id: ObjectId, services: ServicesDep, limit: Limit = 20, after: After = None
) -> Page[DeliveryRead]:
    """Attempts, the last status, and when it is tried again."""
    page = webhooks.list_deliveries(services.database, webhook_id, limit=limit, cursor=after)
    return Page.build(page, map(DeliveryRead.from_delivery, page.items))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}:redeliver",
    summary="Send a message once more",
    responses=ok(202, "It is sent again, under the same id."),
)
def redeliver_webhook_delivery(webhook_id: ObjectId, delivery_id: ObjectId, services: ServicesDep) -> DeliveryRead:
    """Whatever the state of the delivery."""
    return DeliveryRead.from_delivery(webhooks.redeliver(services.database, webhook_id, delivery_id))
