"""What a training request costs the account of its data set."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidDelta, StateConflict
from datalens_service.methods import Plan
from datalens_service.spec import PlanSummary, TrainingSpec, summarize
from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.ledger import account_summary
from datalens_service.store.ledger.account_summary import AccountSummary


@dataclass(frozen=True)
class Quote:
    """A training request with its price.

    Attributes:
        spec: With the δ of the account filled in.
        plan: What will be reserved, and run.
        cost: Of the whole plan.
        account: As it was when the price was found.
    """

    spec: TrainingSpec
    plan: Plan
    cost: PlanSummary
    account: AccountSummary

    @property
    def fits(self) -> bool:
        """Whether the remaining budget covers the plan."""
        return self.cost.units <= self.account.remaining_units

    @property
    def account_after(self) -> AccountSummary:
        """The account once the plan is reserved."""
        return replace(self.account, reserved_units=self.account.reserved_units + self.cost.units)


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
        account = account_summary.statement(session, dataset_id)
    if dataset.state is not DatasetState.READY:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    if spec.evaluation.enabled and spec.evaluation.holdout is not None:
        datasets.check_holdout(database, dataset_id, spec.evaluation.holdout)
    asked = _with_delta(spec, account.delta)
    plan = _plan(asked, dataset.schema)
    return Quote(asked, plan, summarize(plan, asked.epsilon, account.delta), account)


@functools.lru_cache(maxsize=256)
def _plan(spec: TrainingSpec, schema: Schema) -> Plan:
    """Of public numbers only; who submits a job has mostly asked for its price a moment before."""
    return spec.plan(schema)


def _with_delta(spec: TrainingSpec, delta: float) -> TrainingSpec:
    """One account has one δ: statements at different δ do not add up."""
    if spec.delta not in (None, delta):
        raise InvalidDelta(f"The budget of this data set is kept at delta {delta!r}; name that one or leave it out.")
    return spec.model_copy(update={"delta": delta})
