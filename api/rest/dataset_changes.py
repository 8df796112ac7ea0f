"""Changes of a dataset: its confirmation, which opens the budget, labels, and the account with its journal."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from datalens_service.api.deps import Caller, LastKnown, Limit, ObjectId, ServicesDep
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.openapi import examples
from datalens_service.api.openapi.document import ok
from datalens_service.api.problems.handlers import PRIVATE
from datalens_service.api.rest.datasets import check_own_account, read_uploaded
from datalens_service.api.schemas.common import BudgetRead, DatasetRead
from datalens_service.api.schemas.datasets import ConfirmationRequest, EntryPage, RaiseRequest, UploadedDataset
from datalens_service.api.schemas.labels import DatasetChanges
from datalens_service.api.security.permissions import may_see_persons
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.services import budgets, ingestion
from datalens_service.store import labels
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger import account_summary
from datalens_service.store.ledger.journal_pages import read_spenders

router = APIRouter(route_class=StrictRoute, prefix="/v1/datasets", tags=["datasets"])


@router.post(
    "/{dataset_id}:confirm",
    summary="Make the class names of an upload public and open its budget",
    responses=ok(
        200,
        "The dataset, ready.",
        "invalid-input",
        "dataset-invalid",
        "invalid-spec",
        "invalid-delta",
        "state-conflict",
        "insufficient-storage",
        made="dataset_id",
    ),
)
def confirm_dataset(
    dataset_id: ObjectId,
    confirmation: Annotated[ConfirmationRequest, Body(openapi_examples=examples.CONFIRMATIONS)],
    services: ServicesDep,
    key: Caller,
    response: Response,
) -> UploadedDataset:
    """The owner of an upload in state `review` confirms it once they have looked at the class names. Repeatable.

    Everything that an upload may be refused for because of its budget is refused here, and the upload then waits on:
    confirm it with another budget, or delete it.
    """
    response.headers.update(PRIVATE)
    check_own_account(services, key.tenant_id, confirmation.shares_budget_with)
    ingestion.confirm(services.database, services.settings, dataset_id, confirmation)
    return read_uploaded(services, dataset_id)


@router.patch(
    "/{dataset_id}",
    summary="Rename, tag and annotate a dataset",
    responses=ok(200, "The dataset as it is now.", "state-conflict"),
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


@router.get(
    "/{dataset_id}/privacy/entries",
    summary="Read the journal of a dataset's account in pages",
    responses=ok(200, "A page of the journal, oldest first.", "not-found", "state-conflict", "invalid-input"),
)
def list_dataset_privacy_entries(
    dataset_id: ObjectId,
    services: ServicesDep,
    key: Caller,
    after: LastKnown = 0,
    limit: Limit = 100,
    kind: Annotated[EntryKind | None, Query(description="Only entries of this kind, for example `charge`.")] = None,
) -> EntryPage:
    """Every reservation, charge, return and raise. With `kind`, seals are not next to each other any more."""
    with services.database.session() as session:
        entries = account_summary.entries_after(session, dataset_id, after, limit + 1, kind)
        named = (entry.job_id for entry in entries[:limit]) if may_see_persons(key) else ()
        spenders = read_spenders(session, named)
    return EntryPage.cut(entries, limit, lambda entry: entry, spenders=list(spenders))


@router.post(
    "/{dataset_id}/privacy:raise",
    summary="Raise the lifetime budget of a dataset",
    responses=ok(
        200, "The account after the raise.", "state-conflict", "invalid-input", "invalid-spec", "ledger-corrupt"
    ),
)
def raise_dataset_privacy(
    dataset_id: ObjectId,
    request: Annotated[RaiseRequest, Body(openapi_examples=examples.RAISES)],
    services: ServicesDep,
    key: Caller,
) -> BudgetRead:
    """Weakens what was promised of the dataset, for good: there is no way back.

    The account's journal shows the raise to whoever verifies a job; the audit journal keeps the reason.
    """
    raised = budgets.raise_budget(services.database, dataset_id, request.epsilon, reason=request.reason, actor=key.id)
    return BudgetRead.from_account(raised)
