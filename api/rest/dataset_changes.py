"""Changes of a dataset: its confirmation, which opens the budget, and its name, tags and notes."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from api.deps import Caller, ObjectId, ServicesDep
from api.http.strictness import StrictRoute
from api.openapi import examples
from api.openapi.document import DATASET_LINKS, ok, problems
from api.problems.handlers import PRIVATE
from api.rest.datasets import check_own_account, read_uploaded
from api.schemas.common import DatasetRead
from api.schemas.datasets import ConfirmationRequest, UploadedDataset
from api.schemas.labels import DatasetChanges
from datalens_service.services import ingestion
from datalens_service.store import labels
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger import account_summary

router = APIRouter(route_class=StrictRoute, prefix="/v1/datasets", tags=["datasets"])


@router.post(
    "/{dataset_id}:confirm",
    operation_id="confirmDataset",
    summary="Make the class names of an upload public and open its budget",
    responses={
        **ok(200, "The dataset, ready.", links=DATASET_LINKS),
        **problems(
            "invalid-input",
            "dataset-invalid",
            "invalid-spec",
            "invalid-delta",
            "state-conflict",
            "insufficient-storage",
        ),
    },
)
def confirm_dataset(
    dataset_id: ObjectId,
    confirmation: Annotated[ConfirmationRequest, Body(openapi_examples=examples.CONFIRMATIONS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> UploadedDataset:
    """For an upload in state `review`, once its owner has looked at the class names. Repeatable.

    Everything that an upload may be refused for because of its budget is refused here, and the upload then waits on:
    confirm it with another budget, or delete it.
    """
    response.headers.update(PRIVATE)
    check_own_account(services, key.tenant_id, confirmation.shares_budget_with)
    ingestion.confirm(services.database, services.settings, dataset_id, confirmation)
    return read_uploaded(services, dataset_id)


@router.patch(
    "/{dataset_id}",
    operation_id="updateDataset",
    summary="Rename, tag and annotate a dataset",
    responses={**ok(200, "The dataset as it is now."), **problems("state-conflict")},
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
    return DatasetRead.from_view(DatasetView.from_dataset(changed), account)
