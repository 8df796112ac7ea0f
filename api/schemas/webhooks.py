"""Webhooks and their deliveries, as requests and answers."""

import json
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, StringConstraints

from datalens_service.base.fields import Flag, Strict, copied
from datalens_service.base.wording import speak
from datalens_service.store.access.webhooks import Delivery, Webhook
from datalens_service.store.jobs.events import EventType

Url = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2048)]
Events = Annotated[list[EventType], Field(min_length=1, max_length=len(EventType))]
_LAST = [EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED]


class WebhookCreate(Strict):
    """An address and the events to send there."""

    url: Url = Field(
        description="A public HTTPS URL, or `mailto:` and an address of a domain that the operator allows; "
        "private-network addresses are refused."
    )
    events: Events = Field(default=_LAST, description="Types of events; `job.progress` is never sent.")


class WebhookChange(Strict):
    """Members to change; omitted ones stay as they are."""

    url: Url | None = None
    events: Events | None = None
    enabled: Flag | None = None


class WebhookRead(BaseModel):
    """A webhook, without its secret."""

    id: str
    url: str
    events: list[EventType]
    enabled: bool
    created_at: datetime

    @classmethod
    def from_webhook(cls, hook: Webhook) -> Self:
        return copied(cls, hook, events=[EventType(event) for event in hook.events])


class WebhookCreated(BaseModel):
    """A new webhook with its secret, which is shown only once."""

    webhook: WebhookRead
    secret: str = Field(description="`whsec_…`, for checking the signature of each message (Standard Webhooks).")


class WebhookList(BaseModel):
    """Webhooks of the tenant, oldest first."""

    items: list[WebhookRead]


class DeliveryRead(BaseModel):
    """A message to a webhook and its delivery state."""

    id: str = Field(description="Sent as `webhook-id`; the same for every attempt.")
    webhook_id: str
    event: str
    payload: dict[str, Any] = Field(description="The message: a type, a time, and ids.")
    state: str = Field(description="`pending`, `delivered` or, after the last attempt, `failed`.")
    attempts: int
    next_attempt_at: datetime | None
    status: int | None = Field(description="Status of the last answer.")
    error: str | None
    created_at: datetime
    delivered_at: datetime | None

    @classmethod
    def from_delivery(cls, delivery: Delivery) -> Self:
        pending = delivery.state == "pending"
        return copied(
            cls,
            delivery,
            payload=json.loads(delivery.payload),
            next_attempt_at=delivery.next_attempt_at if pending else None,
            error=delivery.error and speak(delivery.error),
        )
