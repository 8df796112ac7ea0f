"""Years of history: when is the API ready after a start on it, and how long does a page of the journal take?"""

from __future__ import annotations

import os
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
from deployments.deployment import VOTES, Deployment, lamps
from ports import free_port

CHARGES = 20_000
JOBS = 100
READY_SECONDS = 2.0
PAGE_SECONDS = 0.2
_STARTS = 5
_ROUNDS = 5
_AUDITED = "accounts audited"
_PATIENCE = 120.0


def show() -> dict[str, Any]:
    """Of a whole start on the history: seconds until the API is ready, and of the newest and an older page."""
    with tempfile.TemporaryDirectory(prefix="dlops") as name:
        folder = Path(name)
        database = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
        database.migrate()
        with closing(Deployment(database, folder)) as deployment:
            dataset_id = make_history(deployment)
            starts = [_started(deployment, dataset_id) for _ in range(_STARTS)]
    fastest = min(starts, key=lambda start: float(start["seconds_until_ready"]))
    pages = [page["seconds"] for page in fastest["pages"].values()]
    return {
        "charges": CHARGES,
        "jobs": JOBS,
        "starts": starts,
        # Other work of the machine only adds.
        "kept": fastest["seconds_until_ready"] <= READY_SECONDS and max(pages) <= PAGE_SECONDS,
    }


def _started(deployment: Deployment, dataset_id: str) -> dict[str, Any]:
    port, secret = free_port(), keys.create(deployment.database, "history")[1]
    options = ("--factory", "--host", "127.0.0.1", "--port", str(port), "--no-access-log")
    audited = deployment.log.read_text().count(_AUDITED) if deployment.log.exists() else 0
    began = time.perf_counter()
    process = deployment.start_module("uvicorn", "api.main:create_app", *options)
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE) as client:
        _wait_until_ready(client, process)
        ready, processor = time.perf_counter() - began, _processor_seconds(process.pid)
        client.post("/sign-in", data={"key": secret})
        newest, middle = f"/datasets/{dataset_id}", f"/datasets/{dataset_id}?before={CHARGES // 2}"
        pages = {"newest": _page(client, newest), "middle": _page(client, middle)}
        deployment.wait(lambda: deployment.log.read_text().count(_AUDITED) > audited)
    process.terminate()
    process.wait()
    return {
        "seconds_until_ready": round(ready, 2),
        "processor_seconds_until_ready": round(processor, 2),
        "pages": pages,
    }


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def _wait_until_ready(client: httpx2.Client, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(httpx2.HTTPError):
            if client.get("/readyz").status_code == 200:
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
