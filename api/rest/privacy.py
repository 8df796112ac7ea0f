"""The account of a dataset: its journal in pages, and the one way to raise its limit."""

from typing import Annotated

from fastapi import APIRouter, Body, Query

from api.deps import Caller, LastKnown, Limit, ObjectId, ServicesDep
from api.http.strictness import StrictRoute
from api.openapi import examples
from api.openapi.document import ok, problems
from api.schemas.common import BudgetRead
from api.schemas.datasets import EntryPage, RaiseRequest
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.services import budgets
from datalens_service.store.ledger import account_summary

router = APIRouter(
    prefix="/v1/datasets/{dataset_id}",
    route_class=StrictRoute,
    tags=["datasets"],
    responses=problems("not-found", "state-conflict", "invalid-input"),
)


@router.get(
    "/privacy/entries",
    operation_id="listDatasetPrivacyEntries",
    summary="Read the journal of a dataset's account in pages",
    responses=ok(200, "A page of the journal, oldest first."),
)
def list_entries(
    dataset_id: ObjectId,
    services: ServicesDep,
    after: LastKnown = 0,
    limit: Limit = 100,
    kind: Annotated[EntryKind | None, Query(description="Only entries of this kind, for example `charge`.")] = None,
) -> EntryPage:
    """Every reservation, charge, return and raise. With `kind`, seals are not next to each other any more."""
    with services.database.session() as session:
        entries = account_summary.entries_after(session, dataset_id, after, limit + 1, kind)
    return EntryPage.cut(entries, limit, lambda entry: entry)


@router.post(
    "/privacy:raise",
    operation_id="raiseDatasetPrivacy",
    summary="Raise the lifetime budget of a dataset",
    responses={
        **ok(200, "The account, as it is from now on."),
        **problems("state-conflict", "invalid-input", "invalid-spec", "ledger-corrupt"),
    },
)
def raise_privacy(
    dataset_id: ObjectId,
    request: Annotated[RaiseRequest, Body(openapi_examples=examples.RAISES)],
    services: ServicesDep,
    key: Caller,
) -> BudgetRead:
    """Weakens what was promised to the people in the dataset, for good: there is no way back.

    The account's journal shows the raise to whoever verifies a job; the audit journal keeps the reason.
    """
    reason, epsilon = request.reason, request.epsilon
    return BudgetRead.from_account(
        budgets.raise_budget(services.database, dataset_id, epsilon, reason=reason, actor=key.id)
    )
