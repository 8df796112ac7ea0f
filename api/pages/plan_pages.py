"""The form of a job and its price, before anything is reserved."""

from typing import Annotated, Any, Final
from uuid import uuid4

from fastapi import APIRouter, Body, Query, Response

from datalens_service.api.deps import ObjectId, Services, ServicesDep
from datalens_service.api.pages.views import facts
from datalens_service.api.pages.views.facts import dataset_facts
from datalens_service.api.pages.views.planning import CHOICES, offer_encoders, read_form, read_wanted, suggest_request
from datalens_service.api.pages.views.rendering import PageRoute, Visitor, VisitorDep
from datalens_service.api.schemas.common import PlanRead, ReleaseMode, TrainingRequest
from datalens_service.base.errors import DatalensError, StateConflict, UnreachableAccuracy
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services import pricing
from datalens_service.store.access import tenants
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.jobs import jobs

_NEWEST: Final = 200

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/datasets/{dataset_id}/new-job")
def show_plan_form(
    dataset_id: ObjectId,
    visitor: VisitorDep,
    services: ServicesDep,
    like: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """The form of a job, as somebody begins who knows nothing yet, or as another job was."""
    stored = _ready(services, dataset_id)
    shown = dataset_facts(services, stored)[dataset_id] | {"encoders": offer_encoders(stored.schema)}
    form, needs_approval = suggest_request(shown["dataset"].privacy), False
    if like is not None:
        with services.database.connection() as connection:
            tenants.check_owned(connection, visitor.tenant_id, {"job_id": like})
        repeated = jobs.get(services.database, like)
        form, needs_approval = RequestedSpec.model_validate(repeated.spec), repeated.approval is not None
    public = _public_sets(services, visitor, dataset_id)
    shown |= {"form": form, "like": like, "needs_approval": needs_approval}
    return visitor.page("plan", **shown, choices=CHOICES, public_sets=public)


@router.post("/datasets/{dataset_id}/plan")
def show_plan(
    dataset_id: ObjectId, filled: Annotated[dict[str, Any], Body()], visitor: VisitorDep, services: ServicesDep
) -> Response:
    """Price the form, as a part of its page, with the very request that the button sends."""
    _ready(services, dataset_id)
    try:
        # Browsers leave it out when it is not ticked.
        ticked = {name: ReleaseMode(filled.pop(name)) for name in ("release",) if name in filled}
        accuracy, spec = read_wanted(filled), read_form(filled)
        training_request = TrainingRequest(dataset_id=dataset_id, spec=spec, **ticked)
        priced = pricing.price_request(services.database, visitor.tenant_id, dataset_id, spec, services.prices)
        plan, unreachable = _read_plan(services, priced, accuracy)
    except DatalensError as error:
        return visitor.page("parts/plan_refused", detail=error.detail)
    return visitor.page(
        "parts/plan_cost",
        plan=plan,
        unreachable=unreachable,
        unit=priced.schema.privacy_unit.word,
        gauge=facts.divide_budget(plan.budget, plan.cost.ledger_units),
        training_request=training_request,
        # One key per price: pressing twice submits once.
        idempotency_key=str(uuid4()),
    )


def _read_plan(services: Services, priced: pricing.PricedRequest, accuracy: float | None) -> tuple[PlanRead, str]:
    """The plan, and why no ε is expected to reach the wanted accuracy, which changes no price."""
    try:
        return PlanRead.from_priced(priced, services.prices, accuracy), ""
    except UnreachableAccuracy as error:
        return PlanRead.from_priced(priced, services.prices), error.detail


def _public_sets(services: Services, visitor: Visitor, dataset_id: str) -> list[StoredDataset]:
    """Newest data sets that a job may start from."""
    newest = datasets.list_datasets(services.database, limit=_NEWEST, tenant_id=visitor.tenant_id).items
    return [
        one
        for one in newest
        if one.schema.records_are_public and one.state is DatasetState.READY and one.id != dataset_id
    ]


def _ready(services: Services, dataset_id: str) -> StoredDataset:
    dataset = datasets.get(services.database, dataset_id)
    if dataset.state is DatasetState.DELETED:
        raise StateConflict("The records of this data set were deleted, so no job can train on it.")
    return dataset
