"""Years of history: how long does a process take to start on it, and a page of the journal to be built?"""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.proof.hash_chain import Entry
from datalens_service.store.access import keys
from datalens_service.store.charge_log import ChargeLog, LogLine
from datalens_service.store.database import Database
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.recovery import check_against_log
from deployments.deployment import VOTES, Deployment, lamps
from deployments.redis import free_port

CHARGES = 20_000
JOBS = 100
READY_SECONDS = 2.0
PAGE_SECONDS = 0.2
_ROUNDS = 5
_PATIENCE = 120.0


def show() -> dict[str, Any]:
    """Seconds of the audit that a start waits for, of a whole start, and of the newest and an older page."""
    with tempfile.TemporaryDirectory(prefix="dlops") as name:
        folder = Path(name)
        database = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
        database.migrate()
        with closing(Deployment(database, folder)) as deployment:
            dataset_id = make_history(deployment)
            audits = [_seconds_of_audit(database) for _ in range(_ROUNDS)]
            served = _served(deployment, dataset_id)
    pages = [page["seconds"] for page in served["pages"].values()]
    return {
        "charges": CHARGES,
        "jobs": JOBS,
        "seconds_of_audit": [round(seconds, 2) for seconds in audits],
        **served,
        "kept": min(audits) <= READY_SECONDS and max(pages) <= PAGE_SECONDS,
    }


def _seconds_of_audit(database: Database) -> float:
    began = time.perf_counter()
    assert check_against_log(database) == ()
    return time.perf_counter() - began


def _served(deployment: Deployment, dataset_id: str) -> dict[str, Any]:
    port, secret = free_port(), keys.create(deployment.database, "history")[1]
    options = ("--factory", "--host", "127.0.0.1", "--port", str(port), "--no-access-log")
    began = time.perf_counter()
    process = deployment.start_module("uvicorn", "api.main:create_app", *options)
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE) as client:
        _wait_until_alive(client, process)
        ready = time.perf_counter() - began
        client.post("/sign-in", data={"key": secret})
        newest, middle = f"/datasets/{dataset_id}", f"/datasets/{dataset_id}?before={CHARGES // 2}"
        return {
            "seconds_until_the_api_answers": round(ready, 2),
            "pages": {"newest": _page(client, newest), "middle": _page(client, middle)},
        }


def _page(client: httpx2.Client, path: str) -> dict[str, float]:
    seconds, length = [], 0
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        reply = client.get(path)
        seconds.append(time.perf_counter() - began)
        assert reply.status_code == 200
        assert "Older entries" in reply.text
        length = len(reply.content)
    return {"seconds": round(min(seconds), 3), "kilobytes": round(length / 1000)}


def _wait_until_alive(client: httpx2.Client, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(httpx2.HTTPError):
            if client.get("/livez").status_code == 200:
                return
        time.sleep(0.02)
    raise ChildProcessError("the API ended")


def make_history(deployment: Deployment, charges: int = CHARGES) -> str:
    """An account with many charges of jobs that take turns, and the log of them; the id of its data set."""
    database = deployment.database
    dataset = deployment.upload(lamps())
    submitted = [deployment.submit({**VOTES, "epsilon": 0.2}, dataset) for _ in range(JOBS)]
    leases = [deployment.claim(job) for job in submitted]
    assert database.log is not None
    lines: list[bytes] = []
    with database.transaction() as session:
        for number in range(charges):
            lease = leases[number % JOBS]
            entry: Entry = ledger.charge(session, lease.job_id, lease.token, number // JOBS, "votes", 1)
            lines.append(LogLine.of(entry).encoded())
        account, _ = ledger.lock(session, leases[0].job_id)
        database.log.path.write_bytes(b"".join(lines))
        account.checked_log_bytes = database.log.path.stat().st_size
    return dataset.id
