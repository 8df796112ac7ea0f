"""Prices a training request for the account of its data set, and checks whether it may start from public images.

Only a data set that was declared public when it was uploaded is one of those. Prices, and what to expect of a job,
follow from a spec and a schema, which are public: a service remembers them, and how soon an answer comes tells nothing
of records.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Self

from pydantic import BaseModel, Field

from datalens_service.base.errors import InvalidDelta, InvalidSpec, StateConflict
from datalens_service.base.fields import Stated
from datalens_service.base.parsing import decimal_text
from datalens_service.base.wording import Voice, current_voice, spoken_to
from datalens_service.data.dataset import Schema
from datalens_service.data.export.licence import OF_PUBLIC_IMAGES, describe_public_images
from datalens_service.methods import Plan
from datalens_service.methods.public_start import check_same_size
from datalens_service.planning.expectations import Shares, compare, expect
from datalens_service.planning.expected_results import Comparison, Expectation
from datalens_service.planning.phases import expect_phases, measure_machine
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import Charge, stated_epsilon, stated_mu
from datalens_service.privacy.guarantee import PrivacyUnit, job_guarantee
from datalens_service.spec import PlanSummary, TrainingSpec
from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import account_summary
from datalens_service.store.ledger.account_summary import AccountSummary

_REMEMBERED: Final = 64


class Price(NamedTuple):
    """The price of a spec, its plan, and the spec with its method and δ filled in."""

    spec: TrainingSpec
    plan: Plan
    summary: PlanSummary


class Prices:
    """The latest prices and expectations of a process."""

    def __init__(self) -> None:
        self._price = lru_cache(_REMEMBERED)(_price)
        self._foresee = lru_cache(_REMEMBERED)(_foresee)

    def price(self, spec: TrainingSpec | RequestedSpec, schema: Schema, delta: float) -> Price:
        """Price a spec at the δ of an account.

        Raises:
            InvalidDelta: The spec names another δ.
            InvalidSpec: The method does not fit the schema, or ε pays for no step.
        """
        # Models are equal whether or not a member was named, but a method may fill in what was left out.
        return self._price(spec.model_dump_json(exclude_unset=True), spec, schema, delta)

    def foresee(
        self, spec: TrainingSpec, schema: Schema, shares: Shares = None, teaching: bool = False
    ) -> tuple[Expectation, Comparison]:
        """Return what to expect of a job on a machine as fast as this one, and of other methods at its ε.

        Args:
            shares: Declared frequencies of the classes.
            teaching: True if the request names the purpose `teach`.
        """
        return self._foresee(spec, schema, shares and tuple(shares), teaching, current_voice())


def _price(_stated: str, spec: TrainingSpec | RequestedSpec, schema: Schema, delta: float) -> Price:
    resolved = _with_delta(spec.resolve(schema) if isinstance(spec, RequestedSpec) else spec, delta)
    plan = resolved.plan(schema)
    summary = resolved.summarize(plan, schema)
    return Price(resolved, plan, summary.model_copy(update={"phase_seconds": expect_phases(resolved, schema)}))


def _with_delta(spec: TrainingSpec, delta: float) -> TrainingSpec:
    """Give the request the δ of its account: statements at different δ do not add up."""
    if spec.delta not in (None, delta):
        kept = decimal_text(delta)
        raise InvalidDelta(f"The budget of this data set is kept at δ = {kept}; name that one or leave it out.")
    return spec.model_copy(update={"delta": delta})


def _foresee(
    spec: TrainingSpec, schema: Schema, shares: Shares, teaching: bool, voice: Voice
) -> tuple[Expectation, Comparison]:
    asked = (spec, schema, measure_machine(), shares, teaching)
    with spoken_to(voice):
        return expect(*asked), compare(*asked)


@dataclass(frozen=True)
class PricedRequest:
    """A training request with its price.

    Attributes:
        spec: With its method, and the δ of the account filled in.
    """

    dataset_id: str
    asked: TrainingSpec | RequestedSpec
    spec: TrainingSpec
    plan: Plan
    price: PlanSummary
    account: AccountSummary
    schema: Schema

    @property
    def fits(self) -> bool:
        """Return True if the remaining budget covers the plan."""
        return self.account.covers(self.plan.charge())

    @property
    def class_shares(self) -> tuple[float, ...] | None:
        """The declared frequencies of the classes; None where nothing was declared."""
        return self.asked.class_shares

    @property
    def teaching(self) -> bool:
        """Return True if the request names the purpose `teach`: labels are what it is for."""
        return isinstance(self.asked, RequestedSpec) and self.asked.purpose == "teach"

    @property
    def account_after(self) -> AccountSummary:
        """The account once the plan is reserved."""
        return self.account.with_reserved(self.plan.charge())


def price_request(
    database: Database,
    tenant_id: str,
    dataset_id: str,
    spec: TrainingSpec | RequestedSpec,
    prices: Prices | None = None,
) -> PricedRequest:
    """Price a training request; nothing is reserved.

    Args:
        prices: Prices that are remembered; None prices anew.

    Raises:
        StateConflict: The data set was deleted, or its upload was not opened yet.
        InvalidDelta: The request names another δ than the account.
        InvalidSpec: The method does not fit the data set, or ε pays for no step.
    """
    with database.session() as session:
        tenants.check_owned(session.connection(), tenant_id, {"dataset_id": dataset_id})
        dataset, account = datasets.read(session, dataset_id), account_summary.summarize_account(session, dataset_id)
    if dataset.state is not DatasetState.READY:
        raise StateConflict("The data set was deleted; upload it again to train on it.")
    if spec.evaluation.enabled and spec.evaluation.holdout is not None:
        with database.connection() as connection:
            tenants.check_owned(connection, tenant_id, {"dataset_id": spec.evaluation.holdout})
        datasets.check_holdout(database, dataset_id, spec.evaluation.holdout)
    public = spec.public_data and check_public_data(database, tenant_id, spec.public_data, dataset)
    resolved, plan, price = (prices or Prices()).price(spec, dataset.schema, account.delta)
    if public:
        price = price.model_copy(update={"warnings": [*price.warnings, describe_public_data(public)]})
    return PricedRequest(dataset_id, spec, resolved, plan, price, account, dataset.schema)


class JobPrivacy(BaseModel):
    """The budget that a job has spent so far."""

    epsilon_spent: Stated = Field(description="ε at `delta` of the releases made so far, rounded up.")
    epsilon_limit: Stated = Field(description="ε the job may spend.")
    delta: Stated
    mu: Stated = Field(description="μ of the releases made so far, rounded up.")
    guarantee: str = Field(
        default="",
        description="Whom ε protects, against what: the sentence for people. It is about the whole plan until the job "
        "ends, then about what it spent. Empty where nothing was spent, and for jobs that version 1.0.0 planned.",
    )

    @classmethod
    def from_job(cls, job: Job, price: PlanSummary) -> Self:
        """The spending of a job at the δ of its plan.

        The slack of a plan is charged with its first sampled release; here with the first of all.
        """
        ledger_units = job.charged_units
        charge = Charge(ledger_units, price.slack if ledger_units else 0)
        spent = stated_epsilon(charge, price.delta)
        ended = job.released_at is not None or job.state.terminal
        return cls(
            epsilon_spent=spent,
            epsilon_limit=price.epsilon_limit,
            delta=price.delta,
            mu=stated_mu(ledger_units),
            guarantee=_tell_guarantee(price, spent, charge) if ended else price.guarantee,
        )


def _tell_guarantee(price: PlanSummary, spent: float, charge: Charge) -> str:
    if price.unit is None or not charge.ledger_units:
        return ""
    return job_guarantee(PrivacyUnit(price.unit, price.records_per_unit), spent, price.delta, charge)


def check_public_data(database: Database, tenant_id: str, dataset_id: str, private: StoredDataset) -> StoredDataset:
    """The public data set that a job names, unless the job cannot start from it.

    Raises:
        NotFound: The tenant has no such data set.
        InvalidSpec: It was not declared public, has the same account, or its images have another size.
    """
    with database.session() as session:
        tenants.check_owned(session.connection(), tenant_id, {"dataset_id": dataset_id})
        public = datasets.read(session, dataset_id)
    if not public.schema.records_are_public:
        raise InvalidSpec(
            "⟦spec.public_data⟧ names a data set that is private: only one that was uploaded with ⟦public_records⟧ may "
            "be used."
        )
    if public.state is not DatasetState.READY:
        raise StateConflict("The public data set was deleted; upload it again to start from it.")
    if public.account_id == private.account_id:
        raise InvalidSpec(
            "⟦spec.public_data⟧ has the same budget as the data set that is trained on: they share images, or were "
            "tied to one account. The guarantee would not hold for what is in both: name public images of their own."
        )
    check_same_size(private.schema, public.schema)
    return public


def describe_public_data(public: StoredDataset) -> str:
    """Say what a plan and the page of a job state about the public data."""
    images = describe_public_images(f"the data set “{public.name}” ({public.id})", public.schema.public_license)
    return f"Public images are used beside the private ones: {images}. {OF_PUBLIC_IMAGES}"
