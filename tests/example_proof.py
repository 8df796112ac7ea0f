"""The proof of a job that nobody ran, made as a worker makes one, so that `datalens verify` accepts it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

from datalens_service.data.dataset import Schema
from datalens_service.evaluation.report.build import MethodFacts, Report
from datalens_service.evaluation.report.document import Product
from datalens_service.evaluation.report.privacy_statement import privacy_statement
from datalens_service.mechanisms import PlannedRelease
from datalens_service.methods import Moments
from datalens_service.privacy.accounting import default_delta, limit_units
from datalens_service.proof.hash_chain import GENESIS, Entry, EntryKind, budget_label
from datalens_service.proof.job_proof import JobProof, build_account_proof
from datalens_service.signatures import SigningKey
from datalens_service.spec import TrainingSpec

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple(str(digit) for digit in range(10)), num_units=60_000)
DATASET_ID = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
AT = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_JOB_ID = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_EPSILON = 10.0
_DELTA = default_delta(SCHEMA.num_units)
_SPEC = TrainingSpec(method=Moments(), epsilon=1.0, delta=_DELTA)
_OPENED = Entry.sealed(
    account_id="acc_8d1f3b5a7c9e4f2d6b0a1c3e5f7a9b2d",
    seq=1,
    kind="open",
    dataset_id=DATASET_ID,
    label=budget_label(_EPSILON, _DELTA),
    units=limit_units(_EPSILON, _DELTA),
    at=AT,
    previous_hash=GENESIS,
)


def _example() -> JobProof:
    """The proof of the first job of an account, right after its last release."""
    plan = _SPEC.plan(SCHEMA).releases
    entries = list(_journal(plan))
    privacy = privacy_statement(
        releases=plan,
        units_charged=sum(entry.units for entry in entries if entry.kind == EntryKind.CHARGE),
        epsilon_limit=_SPEC.epsilon,
        limit_units=_SPEC.limit_units(SCHEMA),
        delta=_DELTA,
        num_units=SCHEMA.num_units,
        unit=SCHEMA.unit,
    )
    report = Report(
        date=AT.date(),
        product=Product.at_commit(None),
        dataset_id=DATASET_ID,
        public_schema=SCHEMA,
        method=MethodFacts(name=_SPEC.method.name, spec=_SPEC.model_dump(mode="json"), plan=plan),
        privacy=privacy,
    )
    return JobProof.from_account_proof(build_account_proof(_JOB_ID, report, entries, _EPSILON, _DELTA))


def _journal(plan: Sequence[PlannedRelease]) -> Iterator[Entry]:
    """Opened, reserved, and a charge per release."""
    last = _OPENED
    yield last
    releases = list(chain.from_iterable(repeat(each.mechanism, each.count) for each in plan))
    last = _next(last, EntryKind.RESERVE, sum(each.cost() for each in releases))
    yield last
    for step, mechanism in enumerate(releases):
        last = _next(last, EntryKind.CHARGE, mechanism.cost(), step=step, label=mechanism.label())
        yield last


def _next(last: Entry, kind: EntryKind, units: int, *, step: int | None = None, label: str = "") -> Entry:
    return Entry.sealed(
        account_id=last.account_id,
        seq=last.seq + 1,
        kind=kind.value,
        dataset_id=last.dataset_id,
        job_id=_JOB_ID,
        step=step,
        label=label,
        units=units,
        lease_token=None if step is None else 1,
        at=last.at,
        previous_hash=last.hash,
    )


def of_version(proof: dict[str, Any], version: str) -> dict[str, Any]:
    """The proof as another version of the product had made it; a signature no longer fits."""
    product = {**proof["product"], "version": version}
    return {**proof, "product": product, "card": {**proof["card"], "product": product}}


# Signed by nobody: the secret is known to all.
EXAMPLE_PROOF: dict[str, Any] = SigningKey(b"example").sign(_example().model_dump(mode="json"))
