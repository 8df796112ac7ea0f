"""What has to hold of every job after all kills, from three sides: journal, stored sums, and notes of the draws."""

from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.base.errors import DatalensError
from datalens_service.proof.hash_chain import SPENDS
from datalens_service.proof.proof_verification import verify
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger.recovery import check_against_log
from deployments.stack import Stack


def audit(stack: Stack, ordered: list[Job], seen: dict[str, dict[int, str]], draws: Path) -> dict[str, Any]:
    """Count every violation; all counts are 0 for a sound service.

    Args:
        stack: After the last recovery, with all jobs ended.
        ordered: Every job that was accepted.
        seen: Digests of stored sums per job, as they were met during the run.
        draws: Folder of the notes that job processes made before each draw.
    """
    ended = [stack.job(job) for job in ordered]
    return {
        "lost_jobs": sum(job.state != JobState.SUCCEEDED for job in ended),
        "double_draws": sum(_double_draws(stack, job, seen.get(job.id, {}), draws) for job in ended),
        "under_counts": sum(_under_counts(stack, job) for job in ended),
        "frozen_accounts": len(check_against_log(stack.database)),
        "bundles_that_do_not_recompute": sum(not _recomputes(stack, job) for job in ended),
        "charges": sum(len(_charges(stack, job)) for job in ended),
        "draws": sum(_drawn(job, draws) for job in ended),
        "steps_charged_again": sum(_charged_again(stack, job) for job in ended),
    }


def _double_draws(stack: Stack, job: Job, seen: dict[int, str], draws: Path) -> int:
    """Sums that were stored and replaced, and draws that no charge paid for."""
    stored = stack.stored_steps(job)
    replaced = sum(stored.get(step) != digest for step, digest in seen.items())
    return replaced + max(0, _drawn(job, draws) - len(_charges(stack, job)))


def _under_counts(stack: Stack, job: Job) -> int:
    """Sums without a charge, and sums of the books that are below the charges."""
    charges = _charges(stack, job)
    unpaid = stack.stored_steps(job).keys() - {step for step, _ in charges}
    units = sum(units for _, units in charges)
    try:
        balance = stack.verified(job)
    except DatalensError:
        return 1
    return len(unpaid) + (job.charged_units < units) + (balance.charged[job.id] < units)


def _recomputes(stack: Stack, job: Job) -> bool:
    for path in ("bundle", "artifacts/account-proof.json"):
        reply = httpx2.get(f"{stack.url}/v1/jobs/{job.id}/{path}", headers=stack.headers, timeout=60)
        if reply.status_code != 200 or not verify(reply.content).holds:
            return False
    return True


def _charges(stack: Stack, job: Job) -> list[tuple[int | None, int]]:
    return [(entry.step, entry.ledger_units) for entry in stack.entries(job) if entry.kind in SPENDS]


def _charged_again(stack: Stack, job: Job) -> int:
    counted = Counter(step for step, _ in _charges(stack, job))
    return sum(count - 1 for count in counted.values())


def _drawn(job: Job, draws: Path) -> int:
    path = draws / job.id
    return len(path.read_text().splitlines()) if path.exists() else 0
