"""Shapes of requests and answers. ε that was spent is rounded up, ε that remains is rounded down."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar

from pydantic import BaseModel, Field

from datalens_service.api.addresses import Link
from datalens_service.base.fields import Flag, Integer, Number, Stated, Strict, copied
from datalens_service.data.dataset import Schema
from datalens_service.planning.expected_results import Comparison, Expectation
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.planning.target import Target, find_target
from datalens_service.privacy.accounting import stated_mu
from datalens_service.privacy.guarantee import account_guarantee, advise_on_budget
from datalens_service.services.dataset_declaration import IDENTIFIER
from datalens_service.services.pricing import PricedRequest, Prices
from datalens_service.spec import PlanSummary, TrainingSpec
from datalens_service.store import paging
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.uploads import Joined
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.ledger.account_summary import AccountFigures, AccountSummary
from datalens_service.store.schema.tables import DEFAULT_PRIORITY

Item = TypeVar("Item")

DATASET_STATES: Final = {
    DatasetState.VALIDATING: "the upload is being read; there is no budget yet",
    DatasetState.REVIEW: "its owner looks at the class names before they become public; there is no budget yet",
    DatasetState.INVALID: "the upload cannot be used; `/validation` tells its owner why",
    DatasetState.READY: "jobs can train on it",
    DatasetState.DELETED: "its records are gone; spent budget stays spent",
}


def listed(meanings: dict[Any, str]) -> str:
    """States and their meanings as a list in Markdown."""
    return "\n".join(f"- `{state}`: {meaning}" for state, meaning in meanings.items())


class Units(BaseModel):
    """The account in exact integers: 1e-15 of μ², which add up where ε does not."""

    limit: int
    charged: int = Field(
        description="Spent by releases; for a frozen account also charges that only the charge log knows."
    )
    reserved: int = Field(description="Set aside for jobs that have not ended.")
    remaining: int = Field(description="The largest amount that a new job may reserve.")


class BudgetRead(AccountFigures):
    """The lifetime budget of a dataset, shared by all datasets with the same records."""

    mu_spent: Stated = Field(description="μ of the Gaussian trade-off curve of everything released, rounded up.")
    units: Units
    frozen_reason: str | None = Field(description="Why nothing can be spent: the account failed its check.")

    @property
    def way_out(self) -> str:
        """Say what helps where it does not cover a job; a sentence of pages."""
        advice = advise_on_budget(self.epsilon_remaining, self.epsilon_reserved)
        return f"{advice[0].upper()}{advice[1:]}."

    @classmethod
    def from_account(cls, statement: AccountSummary) -> Self:
        return cls(
            **statement.figures().model_dump(),
            mu_spent=stated_mu(statement.spent_units),
            units=Units(
                limit=statement.limit_units,
                charged=statement.spent_units,
                reserved=statement.reserved_units,
                remaining=statement.remaining_units,
            ),
            frozen_reason=statement.frozen_reason,
        )


class PrivacyLinks(BaseModel):
    """Links of an account."""

    entries: Link = Field(description="The journal in pages; from it, a stranger can recompute the account.")


class PrivacyRead(BudgetRead):
    """The account of a dataset, and where its journal ends."""

    linked_datasets: list[str] = Field(description="Other datasets that the same account pays for.")
    last_entry: int = Field(description="Number of the newest entry of the journal.")
    head_hash: str = Field(description="Its seal, SHA-256 over it and all earlier entries; note it now and then.")
    links: PrivacyLinks

    @classmethod
    def with_head(cls, statement: AccountSummary, dataset_id: str, linked: Sequence[str]) -> Self:
        """A statement with the head of the journal it was made from."""
        more = {
            "linked_datasets": linked,
            "last_entry": statement.entries,
            "head_hash": statement.head_hash,
            "links": PrivacyLinks(entries=f"/v1/datasets/{dataset_id}/privacy/entries"),
        }
        return cls.model_validate({**BudgetRead.from_account(statement).model_dump(), **more})


class DatasetRead(BaseModel):
    """A dataset: what its owner declares public, and its budget. Records are never handed out."""

    id: str
    name: str
    tags: list[str] = Field(default_factory=list)
    notes: str = ""
    state: DatasetState = Field(description=listed(DATASET_STATES))
    format: str | None = Field(description="Format of the upload; null before it was read.")
    created_at: datetime
    deleted_at: datetime | None
    schema_: Schema | None = Field(
        serialization_alias="schema", description="Shape, classes and n: public. Null before the upload was read."
    )
    has_test_split: bool = Field(description="Whether the owner's hold-out was uploaded with it.")
    privacy: BudgetRead | None = Field(description="Null unless the dataset is or was ready.")
    guarantee: str = Field(
        default="",
        description="The sentence for people that says whom the lifetime budget protects. Empty without a budget, "
        "and for public records.",
    )
    joined: Joined | None = Field(
        default=None,
        description="The account that pays for it, if records of it were known; for keys with `datasets:write`, null "
        "for others. Private; deleted with the data.",
    )

    @classmethod
    def from_view(cls, upload: DatasetView, statement: AccountSummary | None, joined: Joined | None = None) -> Self:
        """Return an upload as clients see it; `statement` of one that is or was ready, `joined` to its owner only."""
        dataset = upload.contents
        return copied(
            cls,
            upload,
            tags=list(dataset.tags) if dataset else [],
            notes=dataset.notes if dataset else "",
            format=dataset and dataset.format,
            schema_=dataset and dataset.schema,
            has_test_split=dataset is not None and dataset.has_test,
            privacy=statement and BudgetRead.from_account(statement),
            guarantee=_tell_guarantee(dataset.schema, statement) if dataset and statement else "",
            joined=joined,
        )


def _tell_guarantee(schema: Schema, account: AccountSummary) -> str:
    if schema.records_are_public:
        return ""
    return account_guarantee(schema.privacy_unit, account.epsilon, account.delta, account.limit_units)


class ReleaseMode(StrEnum):
    """Moment at which the result of a job is handed out."""

    AT_ONCE = "at_once"
    AFTER_APPROVAL = "after_approval"


class TrainingRequest(Strict):
    """The spec of a job, and the dataset to train on."""

    dataset_id: str = Field(max_length=64, pattern=IDENTIFIER)
    spec: RequestedSpec
    priority: Integer = Field(
        default=DEFAULT_PRIORITY,
        ge=0,
        le=9,
        description="Among jobs that wait for the same kind of device, those with a higher priority start first. The "
        "service may allow less than 9. It changes no price and no result.",
    )
    release: ReleaseMode = Field(
        default=ReleaseMode.AT_ONCE,
        description="- `at_once`: its result is handed out as soon as it is ready\n- `after_approval`: once a second "
        "person, with the scope `releases:approve`, has released it. It changes no price and no result.",
    )
    accept_low_utility: Flag = Field(
        default=False,
        description="Whether a job may spend budget although its plan has a `warning`: below that limit noise drowns "
        "what images of a class have in common. A plan does not need this.",
    )


class PlanRequest(TrainingRequest):
    """A training request that is priced, and the accuracy that it should reach."""

    accuracy: Number | None = Field(
        default=None,
        gt=0,
        lt=100,
        description="Wanted accuracy in percent: `target` then has the least ε that is expected to reach it.",
    )


class PlanRead(BaseModel):
    """The price of a job, of which nothing was reserved."""

    spec: TrainingSpec = Field(description="The planned method, with every default filled in.")
    cost: PlanSummary
    fits: bool = Field(description="Whether the remaining budget covers it now.")
    budget: BudgetRead = Field(description="The account as it is.")
    budget_after: BudgetRead | None = Field(
        description="The account once this job is submitted, its cost reserved; null if it does not fit."
    )
    expectation: Expectation | None = Field(default=None, description="The results of similar jobs, or a guess.")
    comparison: Comparison | None = Field(default=None, description="Every method that fits the images, at the same ε.")
    target: Target | None = Field(default=None, description="What a wanted accuracy needs; null if none is wanted.")

    @classmethod
    def from_priced(cls, priced: PricedRequest, prices: Prices, accuracy: float | None = None) -> Self:
        """The answer to a dry run, with times for a machine as fast as this one.

        Raises:
            UnreachableAccuracy: No ε is expected to reach the wanted accuracy.
        """
        asked, shares = (priced.spec, priced.schema), priced.class_shares
        expectation, comparison = prices.foresee(*asked, shares, priced.teaching)
        return copied(
            cls,
            priced,
            cost=priced.price.spoken(),
            budget=BudgetRead.from_account(priced.account),
            budget_after=BudgetRead.from_account(priced.account_after) if priced.fits else None,
            expectation=expectation,
            comparison=comparison,
            target=None if accuracy is None else find_target(*asked, accuracy, shares),
        )


class Page(BaseModel, Generic[Item]):
    """A page of a list, newest first."""

    items: list[Item]
    has_more: bool
    next_cursor: str | None = Field(description="Value of `after` for the next page.")

    @classmethod
    def build(cls, found: paging.StoredPage[Any], items: Iterable[Item]) -> Self:
        """A page with what is shown of what was found."""
        return cls(items=list(items), has_more=found.next_cursor is not None, next_cursor=found.next_cursor)


class NumberedPage(BaseModel, Generic[Item]):
    """A page of a list whose items have numbers, oldest first."""

    items: list[Item]
    has_more: bool
    next_cursor: int | None = Field(description="Value of `after` for the next page; null at the end for now.")

    @classmethod
    def cut(cls, found: Sequence[Any], limit: int, read: Callable[[Any], Item], **others: Any) -> Self:
        """The first of what was found, which is one more than `limit` where there is another page."""
        last = found[limit - 1].seq if len(found) > limit else None
        items = [read(one) for one in found[:limit]]
        return cls(items=items, has_more=last is not None, next_cursor=last, **others)
