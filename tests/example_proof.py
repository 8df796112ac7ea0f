"""The proof of a job that nobody ran, made as a worker makes one, so that `datalens verify` accepts it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import PlannedRelease
from datalens_service.methods import Moments
from datalens_service.privacy.accounting import default_delta, limit_units
from datalens_service.proof.hash_chain import GENESIS, Entry, EntryKind, budget_label
from datalens_service.proof.job_proof import AccountProof, JobProof, build_account_proof
from datalens_service.proof.spenders import Actor, Spender
from datalens_service.report.build import MethodFacts, Report
from datalens_service.report.document import Product
from datalens_service.report.privacy_statement import privacy_statement
from datalens_service.spec import TrainingSpec

SCHEMA = Schema(channels=1, height=28, width=28, class_names=tuple(str(digit) for digit in range(10)), num_units=60_000)
DATASET_ID = "ds_5b0c2a1e7f3d4c6b8a9e0f1d2c3b4a59"
AT = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
_JOB_ID = "job_0f8e2d4c6b1a49d3a7c5e9f10b2d3c4e"
_EPSILON = 10.0
_DELTA = default_delta(SCHEMA.num_units)


def example_proof(epsilon: float = 1.0, job_id: str = _JOB_ID) -> dict[str, Any]:
    """The unsigned proof of the first job of an account."""
    return JobProof.from_account_proof(example_account_proof(epsilon, job_id)).model_dump(mode="json")


def example_account_proof(epsilon: float = 1.0, job_id: str = _JOB_ID) -> AccountProof:
    """The proof of an account right after the last release of its first job."""
    spec = TrainingSpec(method=Moments(), epsilon=epsilon, delta=_DELTA)
    plan = spec.plan(SCHEMA).releases
    limit = max(_EPSILON, epsilon)
    entries = list(_journal(plan, limit, job_id))
    privacy = privacy_statement(
        releases=plan,
        charged_units=sum(entry.ledger_units for entry in entries if entry.kind == EntryKind.CHARGE),
        epsilon_limit=spec.epsilon,
        limit_units=spec.limit_units(SCHEMA),
        delta=_DELTA,
        num_units=SCHEMA.num_units,
        unit=SCHEMA.unit,
    )
    report = Report(
        date=AT.date(),
        product=Product.at_commit(None),
        dataset_id=DATASET_ID,
        public_schema=SCHEMA,
        method=MethodFacts(name=spec.method.name, spec=spec.model_dump(mode="json"), plan=plan),
        privacy=privacy,
    )
    spenders = [Spender(job_id=job_id, submitted_by=Actor(id="key_5f3c", name="Maria, statistics"))]
    return build_account_proof(job_id, report, entries, limit, _DELTA, spenders)


def _journal(plan: Sequence[PlannedRelease], limit: float, job_id: str) -> Iterator[Entry]:
    """Opened, reserved, and a charge per release."""
    last = Entry.sealed(
        account_id="acc_8d1f3b5a7c9e4f2d6b0a1c3e5f7a9b2d",
        seq=1,
        kind="open",
        dataset_id=DATASET_ID,
        label=budget_label(limit, _DELTA),
        ledger_units=limit_units(limit, _DELTA),
        at=AT,
        previous_hash=GENESIS,
    )
    yield last
    releases = list(chain.from_iterable(repeat(each.mechanism, each.count) for each in plan))
    last = _next(last, EntryKind.RESERVE, job_id, sum(each.cost() for each in releases))
    yield last
    for step, mechanism in enumerate(releases):
        last = _next(last, EntryKind.CHARGE, job_id, mechanism.cost(), step=step, label=mechanism.label())
        yield last


def _next(
    last: Entry, kind: EntryKind, job_id: str, ledger_units: int, *, step: int | None = None, label: str = ""
) -> Entry:
    return Entry.sealed(
        account_id=last.account_id,
        seq=last.seq + 1,
        kind=kind.value,
        dataset_id=last.dataset_id,
        job_id=job_id,
        step=step,
        label=label,
        ledger_units=ledger_units,
        lease_token=None if step is None else 1,
        at=last.at,
        previous_hash=last.hash,
    )


def of_version(proof: dict[str, Any], version: str) -> dict[str, Any]:
    """The proof as another version of the product had made it; a signature no longer fits."""
    product = {**proof["product"], "version": version}
    return {**proof, "product": product, "card": {**proof["card"], "product": product}}


# Signed by nobody: the secret is known to all.
EXAMPLE_PROOF: dict[str, Any] = SigningKey(b"example").sign(example_proof())
