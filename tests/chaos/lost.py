"""What a fault has lost, or that it lost nothing: rows that were there, journals, jobs, and what was released.

Nothing here trusts a total that the service keeps: journals are followed entry by entry, the proof that was released
is recomputed, and rows are compared with those that were seen before the fault.
"""

import json
from typing import Final

from sqlalchemy import select

from datalens_service.proof.proof_verification import verify
from datalens_service.services.journal_check import check_journals
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import account_summary
from datalens_service.store.schema.service_tables import AuditEntryRow, TenantRow
from datalens_service.store.schema.tables import (
    AccountRow,
    ApiKeyRow,
    ArtifactRow,
    DatasetRow,
    IntakeRow,
    JobRow,
    LedgerEntryRow,
    RecordFingerprintRow,
    UploadRow,
)
from deployments.deployment import Deployment

_KEPT: Final = {
    "account": (AccountRow.id,),
    "audit entry": (AuditEntryRow.hash,),
    "data set": (DatasetRow.id,),
    "file of a job": (ArtifactRow.job_id, ArtifactRow.name),
    "fingerprint": (RecordFingerprintRow.fingerprint, RecordFingerprintRow.account_id),
    "job": (JobRow.id,),
    "key": (ApiKeyRow.id,),
    "ledger entry": (LedgerEntryRow.hash,),
    "read upload": (IntakeRow.dataset_id, IntakeRow.state),
    "tenant": (TenantRow.id,),
    "upload": (UploadRow.id,),
}
NOTHING: Final = "nothing"
_PROOFS: Final = 5
"""Proofs that are recomputed: those of the newest jobs."""

Rows = dict[str, set[tuple[object, ...]]]


def read_rows(database: Database) -> Rows:
    """Return what an installation has; none of it may be gone after a fault, but for what the scenario removes."""
    with database.session() as session:
        return {name: {tuple(row) for row in session.execute(select(*kept))} for name, kept in _KEPT.items()}


def find_lost(service: Deployment, before: Rows | None = None) -> list[str]:
    """List what was lost; it is empty if nothing was.

    Args:
        before: Rows that were there before the fault.
    """
    after = read_rows(service.database)
    gone = [f"{len(rows - after[name])} of {name}" for name, rows in (before or {}).items() if rows - after[name]]
    broken = [one.fault for one in check_journals(service.database) if one.fault is not None]
    ended = [job for job in jobs.list_jobs(service.database, limit=200).items if job.state.terminal]
    unequal = [found for job in ended if (found := _compare_books(service, job))]
    made = [job for job in ended if job.state is JobState.SUCCEEDED and not job.is_audit]
    released = [job for job in made if job.results_removed_at is None][:_PROOFS]
    return gone + broken + unequal + [found for job in released if (found := _compare_release(service, job))]


def say_lost(lost: list[str]) -> str | list[str]:
    """Return the figure of a line."""
    return lost or NOTHING


def _compare_books(service: Deployment, job: Job) -> str:
    """Compare what an ended job charged, step by step, with its row and with the sums that it stored."""
    with service.database.session() as session:
        journal = account_summary.entries(session, job.dataset_id)
    charges = [entry for entry in journal if entry.job_id == job.id and entry.kind in ("charge", "recovered")]
    unpaid = service.stored_steps(job).keys() - {entry.step for entry in charges}
    units = sum(entry.ledger_units for entry in charges)
    if job.charged_units == units and not job.reserved_units and not unpaid:
        return ""
    return f"{job.id} charged {job.charged_units} and its ledger has {units}; unpaid steps: {sorted(unpaid)}"


def _compare_release(service: Deployment, job: Job) -> str:
    """Recompute the proof that a job released, and compare what it states with the ledger."""
    content = ArtifactStore(service.database, service.folder).get(job.id, "privacy.json").path.read_bytes()
    verdict, stated = verify(content), json.loads(content)["card"]["privacy"]["units"]
    if verdict.holds and stated == job.charged_units:
        return ""
    return f"the proof of {job.id} states {stated}, its ledger {job.charged_units}: {verdict.contradiction}"
