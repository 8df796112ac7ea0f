"""Names, tags and notes of datasets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends

from api.deps import ObjectId, ServicesDep, caller
from api.http.strictness import StrictRoute
from api.openapi import examples
from api.openapi.document import ok, problems
from api.schemas.common import DatasetRead
from api.schemas.labels import DatasetChanges
from datalens_service.store import labels
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger import account_summary

router = APIRouter(
    route_class=StrictRoute,
    prefix="/v1/datasets",
    tags=["datasets"],
    dependencies=[Depends(caller)],
    responses=problems("unauthorized", "store-unavailable", "internal-error"),
)


@router.patch(
    "/{dataset_id}",
    operation_id="updateDataset",
    summary="Rename, tag and annotate a dataset",
    responses={**ok(200, "The dataset as it is now."), **problems("not-found", "state-conflict", "invalid-input")},
)
def update_dataset(
    dataset_id: ObjectId,
    changes: Annotated[DatasetChanges, Body(openapi_examples=examples.LABELS)],
    services: ServicesDep,
) -> DatasetRead:
    """Labels are for finding a dataset again. They change no price and no result."""
    changed = labels.label_dataset(services.database, dataset_id, changes.changed())
    with services.database.session() as session:
        account = account_summary.summarize_account(session, dataset_id)
    return DatasetRead.of(DatasetView.from_dataset(changed), account)
