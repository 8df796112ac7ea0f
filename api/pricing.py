"""What a training request costs the account of its data set."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from api.schemas import BudgetRead, PlanRead
from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidDelta, StateConflict
from datalens_service.spec import PlanSummary, TrainingSpec
from datalens_service.store import datasets, statement, tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import DatasetState
from datalens_service.store.statement import Statement


@dataclass(frozen=True)
class Quote:
    """A training request with its price.

    Attributes:
        spec: With the δ of the account filled in.
        cost: Of the whole plan.
        account: As it was when the price was found.
    """

    spec: TrainingSpec
    cost: PlanSummary
    account: Statement

    def as_plan(self) -> PlanRead:
        """The answer to a dry run."""
        fits = self.cost.units <= self.account.remaining_units
        after = replace(self.account, reserved_units=self.account.reserved_units + self.cost.units)
        return PlanRead(
            cost=self.cost,
            fits=fits,
            budget=BudgetRead.of(self.account),
            budget_after=BudgetRead.of(after) if fits else None,
        )


def quote(database: Database, tenant_id: str, dataset_id: str, spec: TrainingSpec) -> Quote:
    """Price a training request; nothing is reserved.

    Raises:
        NotFound: No such data set of this tenant.
        StateConflict: The data set was deleted.
        InvalidDelta: The request names another δ than the account.
        InvalidSpec: The method does not fit the data set, or ε pays for no step.
    """
    with database.session() as session:
        tenants.check_owned(session.connection(), tenant_id, {"dataset_id": dataset_id})
        dataset = datasets.read(session, dataset_id)
        account = statement.statement(session, dataset_id)
    if dataset.state is not DatasetState.READY:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    if spec.evaluation.enabled and spec.evaluation.holdout is not None:
        datasets.check_holdout(database, dataset_id, spec.evaluation.holdout)
    asked = _with_delta(spec, account.delta)
    return Quote(asked, _price(asked, dataset.schema), account)


@functools.lru_cache(maxsize=256)
def _price(spec: TrainingSpec, schema: Schema) -> PlanSummary:
    """Of public numbers only; who submits a job has mostly asked for its price a moment before."""
    return spec.price(schema)


def _with_delta(spec: TrainingSpec, delta: float) -> TrainingSpec:
    """One account has one δ: statements at different δ do not add up."""
    if spec.delta not in (None, delta):
        raise InvalidDelta(f"The budget of this data set is kept at delta {delta!r}; name that one or leave it out.")
    return spec.model_copy(update={"delta": delta})
