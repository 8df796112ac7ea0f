"""How fast is a service with a long history? `python -m benchmarks.growth --jobs 10000 --datasets 1000`.

A real job is copied with all of its rows, and its data set without records. Every copy has its lines in journal and
charge log, so that the accounts add up. Prints JSON: p50, p95 and p99 of one client's requests in milliseconds, and
processor time of the service for each; size of the database; seconds until it is ready and until it has audited all
accounts, which takes part of the processor; its peak of memory; processor seconds for checking the journal of one
account.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from sqlalchemy import ColumnElement, Table, delete, func, insert, select, text, update

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from benchmarks.service import Server, serve, write_dataset
from datalens_service.adapters.startup import start
from datalens_service.base.settings import Settings
from datalens_service.client import Client
from datalens_service.jobs.execute import execute
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.store.access import keys
from datalens_service.store.charge_log import LogLine
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import leases
from datalens_service.store.ledger.chain_verification import verify_chain
from datalens_service.store.schema import job_totals
from datalens_service.store.schema.service_tables import JobEventRow, JobTotalsRow, ReleasedModelRow
from datalens_service.store.schema.tables import (
    AccountRow,
    AggregateRow,
    ArtifactRow,
    Base,
    DatasetRow,
    IntakeRow,
    JobRow,
    LedgerEntryRow,
    ReservationRow,
)

_METHOD: Final = {
    "name": "datalens",
    "teacher": "dense",
    "num_teachers": 20,
    "images_per_step": 4,
    "teacher_batch": 4,
    "teacher_warmup_steps": 2,
    "threshold": "none",
    "top_k": 8,
    "steps": 8,
}
_SPEC: Final = {"method": _METHOD, "epsilon": 0.1, "synthetic_images": 64, "evaluation": {"enabled": False}}
_PARTS: Final = (JobEventRow, ArtifactRow, AggregateRow, ReleasedModelRow)
_SIZE: Final = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_TOGETHER: Final = 50
"""Data sets that are written in one transaction."""
_STEP: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)

Row = dict[str, Any]


class History:
    """Copies of a job that has ended, and of its data set."""

    def __init__(self, database: Database, log: Path, dataset_id: str, job_id: str) -> None:
        self._database, self._log = database, log
        [self._dataset] = self._read(DatasetRow, DatasetRow.id == dataset_id)
        [self._intake] = self._read(IntakeRow, IntakeRow.dataset_id == dataset_id)
        [self._account] = self._read(AccountRow, AccountRow.id == self._dataset["account_id"])
        [self._job] = self._read(JobRow, JobRow.id == job_id)
        [self._reservation] = self._read(ReservationRow, ReservationRow.owner_id == job_id)
        self._parts = {table: self._read(table, table.job_id == job_id) for table in _PARTS}
        entries = self._read(LedgerEntryRow, LedgerEntryRow.account_id == self._account["id"])
        self._opening, *self._lines = sorted(entries, key=lambda entry: int(entry["seq"]))

    def write(self, datasets: int, jobs: int) -> None:
        """Write so many, the jobs on all data sets alike."""
        for first in range(0, datasets, _TOGETHER):
            with self._database.transaction() as session:
                if self._database.dialect == "sqlite":
                    # Hashes of lines come in no order: each is another page of their index.
                    session.execute(text("PRAGMA cache_size = -2000000"))
                for number in range(first, min(first + _TOGETHER, datasets)):
                    for table, copies in self._copy(number, jobs // datasets).items():
                        # By the table, all at once: the mapper sorts rows by what they leave out.
                        session.execute(insert(cast(Table, table.__table__)), copies)
        with self._database.transaction() as session:
            session.execute(update(AccountRow).values(checked_log_bytes=self._log.stat().st_size))
            session.execute(delete(JobTotalsRow))
            job_totals.fill(session.connection())

    def _read(self, table: type[Base], where: ColumnElement[bool]) -> list[Row]:
        with self._database.session() as session:
            return [dict(row) for row in session.execute(select(table.__table__).where(where)).mappings()]

    def _copy(self, number: int, jobs: int) -> dict[type[Base], list[Row]]:
        """One data set with its account and its jobs; the charges are in the log when this returns."""
        own = {"account_id": f"acc_{number}", "dataset_id": f"ds_{number}"}
        journal = [self._sealed(self._opening, own, None)]
        rows: dict[type[Base], list[Row]] = defaultdict(list)
        for place in range(jobs):
            job_id = f"job_{number}_{place}"
            self._copy_job(rows, {**own, "id": job_id, **self._earlier(number * _STEP + _HOUR)})
            for line in self._lines:
                journal.append(self._sealed(line, {**own, "job_id": job_id}, journal[-1]))
        with self._log.open("ab") as log:
            log.writelines(LogLine.from_entry(entry).encoded() for entry in journal if entry.kind == EntryKind.CHARGE)
        head = {"head_seq": journal[-1].seq, "head_hash": journal[-1].hash}
        charged = {"charged_units": jobs * self._reservation["charged_units"]}
        account = {**self._account, "id": own["account_id"], **head, **charged}
        dataset = {**self._dataset, "id": own["dataset_id"], "account_id": own["account_id"]}
        intake = {**self._intake, "dataset_id": own["dataset_id"]}
        lines = [vars(one) for one in journal]
        return {AccountRow: [account], DatasetRow: [dataset], IntakeRow: [intake], **rows, LedgerEntryRow: lines}

    def _earlier(self, by: timedelta) -> Row:
        """Times of the job, so much before those of the real one."""
        return {name: at - by for name, at in self._job.items() if isinstance(at, datetime)}

    def _copy_job(self, rows: dict[type[Base], list[Row]], changed: Row) -> None:
        job_id = changed["id"]
        rows[JobRow].append({**self._job, **changed, "idempotency_key": None})
        held = {"id": job_id, "owner_id": job_id, "account_id": changed["account_id"]}
        rows[ReservationRow].append({**self._reservation, **held})
        for table, parts in self._parts.items():
            own = {"job_id": job_id} | ({"id": f"gen_{job_id}"} if table is ReleasedModelRow else {})
            rows[table] += [{**part, **own} for part in parts]

    def _sealed(self, line: Row, changed: Row, previous: Entry | None) -> Entry:
        link = {} if previous is None else {"seq": previous.seq + 1, "previous_hash": previous.hash}
        return Entry.sealed(**{name: value for name, value in {**line, **changed, **link}.items() if name != "hash"})


def measure(folder: Path, url: str, jobs: int, datasets: int, requests: int) -> dict[str, Any]:
    """All figures; `folder` takes the data, and the database without a URL."""
    settings = Settings(data_dir=folder / "data", database_url=url)
    database = start(settings)
    key = keys.create(database, "benchmark")[1]
    environment = {"DATALENS_DATA_DIR": str(settings.data_dir), "DATALENS_REQUESTS_PER_MINUTE": "1000000"}
    environment |= {"DATALENS_DATABASE_URL": url} if url else {}
    with serve(environment, folder / "log") as server, Client(server.address, key) as client:
        dataset_id = client.upload_dataset(write_dataset(settings.data_dir), epsilon=100.0, confirm_classes=True).id
        job_id = client.submit(dataset_id, _SPEC, accept_low_utility=True).id
    _run(database, settings, job_id)
    History(database, settings.ledger_log_path, dataset_id, job_id).write(datasets, jobs)
    began, log = time.perf_counter(), folder / "log of the start"
    with serve(environment, log) as server, _client(server.address, key) as http:
        started = _watch_start(server, http, log, began)
        http.post("/sign-in", data={"key": key})
        asked = {name: _ask(server, http, path, requests) for name, path in _paths().items()}
    return {**asked, **started, **_sizes(database)}


def _watch_start(server: Server, http: httpx2.Client, log: Path, began: float) -> dict[str, float]:
    """Until all accounts are audited, which runs beside the requests."""
    while http.get("/readyz").status_code != 200:
        time.sleep(0.05)
    ready = time.perf_counter() - began
    while "accounts audited" not in log.read_text():
        time.sleep(0.05)
    peak = Path(f"/proc/{server.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    return {
        "ready_seconds": round(ready, 1),
        "audited_seconds": round(time.perf_counter() - began, 1),
        "audited_processor_seconds": round(server.read_processor_seconds(), 1),
        "peak_mib": round(int(peak) / 2**10),
    }


def _run(database: Database, settings: Settings, job_id: str) -> None:
    lease = leases.claim(database, job_id, "benchmark", 600)
    if lease is None:
        raise RuntimeError("somebody else runs the job")
    execute(database, ArtifactStore(database, settings.data_dir), settings, lease)


def _client(address: str, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=600)


def _paths() -> dict[str, str]:
    return {
        "poll": "/v1/jobs/job_7_1",
        "list": "/v1/jobs?limit=20",
        "datasets": "/v1/datasets?limit=20",
        "account": "/v1/datasets/ds_7/privacy",
        "page": "/datasets/ds_7",
        "usage": "/v1/usage",
        "metrics": "/metrics",
    }


def _ask(server: Server, http: httpx2.Client, path: str, requests: int) -> dict[str, float]:
    taken, processor = [], server.read_processor_seconds()
    for _ in range(requests):
        began = time.perf_counter()
        http.get(path).raise_for_status()
        taken.append(1000 * (time.perf_counter() - began))
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    used = 1000 * (server.read_processor_seconds() - processor) / requests
    return {f"p{place}_ms": round(cuts[place - 1]) for place in (50, 95, 99)} | {"processor_ms": round(used, 1)}


def _sizes(database: Database) -> dict[str, Any]:
    with database.session() as session:
        tables = {"rows_of_jobs": JobRow, "rows_of_datasets": DatasetRow, "rows_of_journals": LedgerEntryRow}
        counted = {name: session.scalar(select(func.count()).select_from(table)) for name, table in tables.items()}
        size = session.scalar(text(_SIZE[database.dialect])) or 0
        began = time.process_time()
        checked = verify_chain(session, "ds_7").head_seq
    seconds = round(time.process_time() - began, 2)
    return {
        "database": database.dialect,
        **counted,
        "database_mib": round(size / 2**20),
        "verify_processor_seconds": seconds,
        "verified_entries": checked,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--database", default="", help="URL of an empty one (default: SQLite)")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--datasets", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=100, help="of each kind")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dlgrowth") as folder:
        measured = measure(Path(folder), given.database, given.jobs, given.datasets, given.requests)
    print_result({**provenance(), "load_average": os.getloadavg()[0], **measured})
    return 0


if __name__ == "__main__":
    sys.exit(main())
