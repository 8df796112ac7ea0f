"""Databases that are older than what was spent: a backup of running jobs, a replica that lost a second."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger.recovery import check_against_log
from deployments.deployment import QUICK
from deployments.postgresql import roomy_memory
from deployments.stack import CeleryStack

from .served import LONG, Figures, served

_LATER_STEPS = 5
"""Charges that the database does not know any more, at least."""


def restored_backup(folder: Path) -> Figures:
    """Database and folders are copied while a job charges, the charge log later; all go to an empty machine."""
    home, copies = folder / "home", folder / "copies"
    home.mkdir()
    copies.mkdir()
    with served(home) as stack:
        ended, running = stack.order(QUICK), stack.order(LONG)
        stack.wait_for_steps(running, 10)
        _program("pg_dump", "--format=custom", f"--file={copies / 'database'}", _url(stack))
        for name in ("datasets", "artifacts"):
            shutil.copytree(home / name, copies / name)
        stack.wait_for_steps(running, len(stack.charged_steps(running)) + _LATER_STEPS)
        shutil.copy(stack.ledger_log, copies / "ledger.log")
        key, spent = stack.key, _read_log(stack)
    shutil.rmtree(home)
    copies.rename(home)
    stack = CeleryStack(home)
    stack.key = key
    try:
        stack.empty_database()
        _program("pg_restore", f"--dbname={_url(stack)}", str(home / "database"))
        stack.serve()
        return _judge(stack, [ended, running], spent)
    finally:
        stack.close()


def failover(folder: Path) -> Figures:
    """PostgreSQL dies while a job charges; what takes its place never heard of the last charges."""
    with served(folder) as stack, tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory()) as sockets:
        # A worker that has not begun yet would not survive the restart that a replica takes.
        stack.wait_for_end(stack.order(QUICK))
        replica = stack.postgresql.replicate(Path(sockets))
        stack.wait(stack.ready)
        running = stack.order(LONG)
        stack.wait_for_steps(running, 10)
        replica.give_up()
        stack.wait_for_steps(running, len(stack.charged_steps(running)) + _LATER_STEPS)
        stack.postgresql.kill()
        spent = _read_log(stack)
        stack.postgresql.take_over(replica)
        stack.wait(stack.ready)
        return _judge(stack, [running], spent)


def _judge(stack: CeleryStack, ordered: list[Job], spent: dict[str, int]) -> Figures:
    """How the jobs end, and whether the books have all that was spent before."""
    ended = [stack.wait_for_end(job) for job in ordered]
    later = stack.wait_for_end(stack.order(QUICK))
    forgotten = sum(max(0, spent[job.id] - stack.statement(job).charged_units) for job in ordered)
    entries = [entry for job in ordered for entry in stack.entries(job)]
    recovered = sum(entry.kind == EntryKind.RECOVERED for entry in entries)
    explained = all(job.state == "succeeded" or job.error for job in ended)
    frozen = len(check_against_log(stack.database))
    passed = recovered and explained and not forgotten and not frozen and later.state == "succeeded"
    return {
        "jobs": [job.state.value for job in ended],
        "reasons": [job.error and job.error["type"] for job in ended],
        "recovered_charges": recovered,
        "forgotten_units": forgotten,
        "frozen_accounts": frozen,
        "later_job": later.state.value,
        "passed": bool(passed),
    }


def _read_log(stack: CeleryStack) -> dict[str, int]:
    """Units that each job has spent, by the charge log."""
    assert stack.database.log is not None
    spent: dict[str, int] = {}
    for line in stack.database.log.read():
        spent[line.job_id] = spent.get(line.job_id, 0) + line.ledger_units
    return spent


def _url(stack: CeleryStack) -> str:
    return stack.database.url.replace("postgresql+psycopg", "postgresql")


def _program(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
