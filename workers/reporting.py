"""The report of a job, from what was planned, what the ledger says, and what was measured; and its bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from datalens_service.data.dataset import Schema
from datalens_service.evaluation import Measure
from datalens_service.evaluation.report import DatasetFacts, MethodFacts, Report
from datalens_service.evaluation.statement import (
    Lifetime,
    PrivacyStatement,
    Release,
    first_releases,
    privacy_statement,
)
from datalens_service.run import Result
from datalens_service.spec import TrainingSpec
from datalens_service.store import datasets, jobs
from datalens_service.store.bundle import Bundle, bundle_of
from datalens_service.store.database import Database
from datalens_service.store.jobs import Job
from datalens_service.store.statement import entries, statement


def report_of(database: Database, job_id: str, result: Result, measures: Sequence[Measure]) -> Report:
    """Everything that is known about a job whose releases are all made."""
    job = jobs.get(database, job_id)
    spec = TrainingSpec.model_validate(job.spec)
    schema = result.generator.schema
    plan = tuple(Release(mechanism=planned.mechanism, count=planned.count) for planned in result.plan.releases)
    return Report(
        dataset=DatasetFacts(id=job.dataset_id, public_schema=schema),
        method=MethodFacts(name=spec.method.name, spec=spec.model_dump(mode="json"), plan=plan),
        privacy=_privacy(database, job, spec, schema, first_releases(plan, result.steps_made)),
        measures=tuple(measures),
    )


def bundle_for(database: Database, job_id: str, report: Report) -> Bundle:
    """What a stranger needs to recompute the cost of a job whose releases are all made."""
    dataset_id = jobs.get(database, job_id).dataset_id
    with database.session() as session:
        account = statement(session, dataset_id)
        return bundle_of(job_id, report, entries(session, dataset_id), account.epsilon, account.delta)


def _privacy(
    database: Database, job: Job, spec: TrainingSpec, schema: Schema, releases: Sequence[Release]
) -> PrivacyStatement:
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
