"""The example of a proof: made as a worker makes one, so that `datalens verify` accepts it."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from datalens_service.data.dataset import Schema
from datalens_service.evaluation.report.build import MethodFacts, Report
from datalens_service.evaluation.report.document import Product
from datalens_service.evaluation.report.privacy_statement import privacy_statement
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.proof.job_proof import JobProof, build_account_proof
from datalens_service.spec import TrainingSpec


def example_bundle(job_id: str, spec: TrainingSpec, schema: Schema, opening: Entry, epsilon: float) -> JobProof:
    """The proof of the first job of an account, right after its last release.

    Args:
        spec: Of the job, with its δ; the account has the same δ.
    """
    plan = spec.plan(schema).releases
    delta = spec.delta or 0.0
    entries = list(_journal(opening, job_id, plan))
    privacy = privacy_statement(
        releases=plan,
        units_charged=sum(entry.units for entry in entries if entry.kind == EntryKind.CHARGE),
        epsilon_limit=spec.epsilon,
        limit_units=spec.limit_units(schema),
        delta=delta,
        num_units=schema.num_units,
        unit=schema.unit,
    )
    report = Report(
        date=opening.at.date(),
        product=Product.at_commit(None),
        dataset_id=opening.dataset_id,
        public_schema=schema,
        method=MethodFacts(name=spec.method.name, spec=spec.model_dump(mode="json"), plan=plan),
        privacy=privacy,
    )
    return JobProof.from_account_proof(build_account_proof(job_id, report, entries, epsilon, delta))


def _journal(opening: Entry, job_id: str, plan: Sequence[PlannedRelease]) -> Iterator[Entry]:
    """Opened, reserved, and a charge per release."""
    last = opening
    yield last
    releases = list(chain.from_iterable(repeat(each.mechanism, each.count) for each in plan))
    units = sum(each.cost() for each in releases)
    last = _next(last, EntryKind.RESERVE, job_id, units)
    yield last
    for step, mechanism in enumerate(releases):
        last = _next(last, EntryKind.CHARGE, job_id, mechanism.cost(), step=step, label=mechanism.label())
        yield last


def _next(last: Entry, kind: EntryKind, job_id: str, units: int, *, step: int | None = None, label: str = "") -> Entry:
    return Entry.sealed(
        account_id=last.account_id,
        seq=last.seq + 1,
        kind=kind.value,
        dataset_id=last.dataset_id,
        job_id=job_id,
        step=step,
        label=label,
        units=units,
        lease_token=None if step is None else 1,
        at=last.at,
        previous_hash=last.hash,
    )
