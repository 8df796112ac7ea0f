"""The report of a job, from what was planned, what the ledger says, and what was measured; and its proof."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from datalens_service.errors import DatalensError
from datalens_service.evaluation.evaluate import Evaluation
from datalens_service.evaluation.report.build import AccountFacts, DatasetFacts, MethodFacts, Product, Report
from datalens_service.evaluation.report.disclosures import Recomputation
from datalens_service.evaluation.report.privacy_statement import (
    Lifetime,
    PrivacyStatement,
    Release,
    first_releases,
    privacy_statement,
)
from datalens_service.privacy.accounting import NeighboringRelation, round_up
from datalens_service.privacy.recomputation import composed_epsilon, discrete_releases
from datalens_service.proof.job_proof import AccountProof, account_proof_of
from datalens_service.run import Result
from datalens_service.settings import Settings
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger.account_summary import entries, statement

# A stated ε is rounded up to four digits and comes from charges rounded up to whole units.
_AGREEMENT: Final = 1e-3


def report_of(database: Database, settings: Settings, job_id: str, result: Result, evaluation: Evaluation) -> Report:
    """Everything that is known about a job whose releases are all made."""
    job = jobs.get(database, job_id)
    spec = TrainingSpec.model_validate(job.spec)
    schema = result.model.schema
    plan = tuple(Release(mechanism=planned.mechanism, count=planned.count) for planned in result.plan.releases)
    privacy = _privacy(database, job, spec, result, first_releases(plan, result.steps_made))
    return Report(
        product=Product(commit=settings.commit),
        contact=settings.contact,
        dataset=DatasetFacts(id=job.dataset_id, public_schema=schema),
        method=MethodFacts(name=spec.method.name, spec=spec.model_dump(mode="json"), plan=plan),
        privacy=privacy,
        account=_account(database, job.dataset_id),
        recomputation=recomputed(privacy),
        measures=evaluation.measures,
        per_class=evaluation.per_class,
        unavailable=evaluation.unavailable,
        confusion=evaluation.confusion,
        result=result.model.result,
        served=settings.served,
    )


def proof_for(database: Database, job_id: str, report: Report) -> AccountProof:
    """What it takes to recompute the cost of a job whose releases are all made, and of its account."""
    dataset_id = jobs.get(database, job_id).dataset_id
    with database.session() as session:
        account = statement(session, dataset_id)
        return account_proof_of(job_id, report, entries(session, dataset_id), account.epsilon, account.delta)


def recomputed(privacy: PrivacyStatement) -> Recomputation:
    """ε of the releases that were made, by dp_accounting; the job goes on if it cannot be had."""
    by = "dp_accounting (privacy loss distributions)"
    counts = Counter(privacy.releases)
    given = [
        discrete_releases(
            release.mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT),
            release.mechanism.noise_stddev,
            release.count * times * release.mechanism.queries_per_unit(NeighboringRelation.ZERO_OUT),
        )
        for release, times in counts.items()
    ]
    try:
        epsilon = composed_epsilon(given, privacy.delta)
    except DatalensError as error:
        return Recomputation(by=by, epsilon=None, delta=privacy.delta, agrees=None, note=error.detail)
    if not math.isfinite(epsilon):
        note = "The privacy loss is beyond what it can tell; an ε of that size promises nothing."
        return Recomputation(by=by, epsilon=None, delta=privacy.delta, agrees=None, note=note)
    lost = privacy.headline.units - sum(release.units(NeighboringRelation.ZERO_OUT) for release in privacy.releases)
    # A charge whose release was lost is in the headline and not among the releases: more is no contradiction.
    agrees = epsilon <= privacy.headline.epsilon + _AGREEMENT and (
        lost > 0 or epsilon >= privacy.headline.epsilon - _AGREEMENT
    )
    note = "It reads the mechanisms listed here and shares no code with the accountant."
    return Recomputation(by=by, epsilon=round_up(epsilon), delta=privacy.delta, agrees=agrees, note=note)


def _account(database: Database, dataset_id: str) -> AccountFacts:
    with database.session() as session:
        now = statement(session, dataset_id)
        first = entries(session, dataset_id)[0]
    return AccountFacts(
        opened_on=first.at.date(),
        opening_entry=first.hash,
        entries=now.entries,
        head=now.head_hash,
        linked_datasets=datasets.linked(database, dataset_id),
    )


def _privacy(
    database: Database, job: Job, spec: TrainingSpec, result: Result, releases: Sequence[Release]
) -> PrivacyStatement:
    schema = result.model.schema
    return privacy_statement(
        releases=releases,
        # From the ledger, not from the plan: a charge whose release was lost counts too.
        units_charged=job.charged_units,
        epsilon_limit=spec.epsilon,
        limit_units=spec.limit_units(schema),
        delta=spec.delta_at(schema),
        num_units=schema.num_units,
        unit=schema.unit,
        records_per_unit=schema.records_per_unit,
        lifetime=_lifetime(database, job),
        result=result.model.result,
    )


def _lifetime(database: Database, job: Job) -> Lifetime:
    """The account as it will be when the job has ended and returned what it did not spend."""
    with database.session() as session:
        now = statement(session, job.dataset_id)
    settled = replace(now, reserved_units=now.reserved_units - job.reserved_units)
    return Lifetime(
        limit=settled.epsilon,
        spent=settled.epsilon_spent,
        reserved=settled.epsilon_reserved,
        remaining=settled.epsilon_remaining,
        delta=settled.delta,
        linked=bool(datasets.linked(database, job.dataset_id)),
    )
