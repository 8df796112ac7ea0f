"""A removal that is killed again and again: what retention has come to, then a tenant that leaves."""

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from sqlalchemy import create_engine, func, select

from datalens_service.client import Client, ClientError
from datalens_service.store.access import access_log, keys, retention, tenants
from datalens_service.store.access.access_log import LOCAL
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.retention import FOR_EVER
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.removals import list_noted
from datalens_service.store.schema.service_tables import ReleasedModelRow
from datalens_service.store.schema.tables import (
    AccountRow,
    ArtifactRow,
    DatasetRow,
    IntakeRow,
    JobRow,
    UploadRow,
)
from deployments.deployment import PATIENCE, QUICK
from deployments.stack import CeleryStack

from .lost import Rows, find_lost, read_rows, say_lost
from .served import Figures, ServedByCommand, read, served

_SIZES = {"aged": 6, "leaving": 6, "staying": 1}
_EPSILON = QUICK["epsilon"]
_ID = re.compile(r"(?:ds|job|upl|gen)_[0-9a-f]{32}")
_LEAVES = ("file of a job", "key", "read upload")
"""Kinds of rows that a removal takes along, of the tenants that something is removed from."""


@dataclass
class _Tenant:
    """A tenant whose data sets have spent their whole budgets, each on one job."""

    id: str
    name: str
    key: str
    paths: list[Path] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)


def interrupted_removal(folder: Path) -> Figures:
    """The API is killed while it removes what retention has come to, and while it removes a tenant; twice each."""
    with served(folder, kind=ServedByCommand) as stack:
        aged, leaving, staying = (_furnish(stack, name) for name in _SIZES)
        before = _without_what_leaves(stack, read_rows(stack.database), aged, leaving)
        stayed = _describe(stack, staying)
        of_age = _interrupt(stack, aged, lambda: _set_retention(stack, aged))
        of_tenant = _interrupt(stack, leaving, lambda: _ask_for_removal(stack, leaving))
        receipt = _wait_for_receipt(stack, leaving)
        figures: Figures = {
            "retention": of_age,
            "tenant": of_tenant,
            "receipt": _verify(stack, receipt),
            "kept_budgets": len(receipt["kept"]["accounts"]),
            "removed_twice": _count_removed_twice(stack, aged, leaving),
        }
        half = _find_half_removed(stack)
        retention.change(stack.database, aged.id, FOR_EVER, actor=LOCAL)
        leaving.key = _return(stack, leaving)
        figures["fresh_budgets"] = sum(_count_fresh_budgets(stack, one) for one in (aged, leaving))
        figures |= {"half_removed": half, "other_tenant_untouched": _describe(stack, staying) == stayed}
        lost = find_lost(stack, before)
    interrupted = all(0 < gone < one["of"] for one in (of_age, of_tenant) for gone in one["gone_when_killed"])
    kept = figures["kept_budgets"] == _SIZES["leaving"] and not figures["fresh_budgets"] and not half
    passed = interrupted and kept and figures["receipt"] and figures["other_tenant_untouched"]
    return figures | {"lost": say_lost(lost), "passed": passed and not figures["removed_twice"] and not lost}


def _furnish(stack: CeleryStack, name: str) -> _Tenant:
    """A tenant with data sets and a finished job on each, which has spent its budget."""
    made = tenants.create(stack.database, name)
    tenant = _Tenant(made.id, name, keys.create(stack.database, KeyRequest("owner", made.id))[1])
    sent = stack.folder / "sent" / name
    sent.mkdir(parents=True)
    rng = np.random.default_rng()
    with Client(stack.url, tenant.key, timeout=PATIENCE) as client:
        for number in range(_SIZES[name]):
            path = sent / f"{number}.npz"
            np.savez(path, images=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), labels=np.arange(200) % 2)
            tenant.paths.append(path)
            tenant.datasets.append(_upload(client, path))
            ordered = client.submit(tenant.datasets[-1], QUICK, accept_low_utility=True).id
            tenant.jobs.append(jobs.get(stack.database, ordered))
    tenant.jobs = [stack.wait_for_end(job) for job in tenant.jobs]
    assert {job.state for job in tenant.jobs} == {JobState.SUCCEEDED}
    tenant.accounts = [datasets.get(stack.database, one).account_id for one in tenant.datasets]
    return tenant


def _upload(client: Client, path: Path) -> str:
    return client.upload_dataset(path, epsilon=_EPSILON, confirm_classes=True).id


def _without_what_leaves(stack: CeleryStack, rows: Rows, *removed_from: _Tenant) -> Rows:
    """Rows that have to be there afterwards."""
    leaving = {one for tenant in removed_from for one in (*tenant.datasets, *(job.id for job in tenant.jobs))}
    leaving |= {key.id for tenant in removed_from for key in keys.list_keys(stack.database, tenant.id)}
    return rows | {kind: {row for row in rows[kind] if row[0] not in leaving} for kind in _LEAVES}


def _describe(stack: CeleryStack, tenant: _Tenant) -> dict[str, Any]:
    """Everything that a tenant can see, and its files."""
    headers = {"Authorization": f"Bearer {tenant.key}"}
    paths = ("/v1/datasets", "/v1/jobs", "/v1/usage", "/v1/retention")
    own = {*tenant.datasets, *(job.id for job in tenant.jobs)}
    files = {path: _digest(path) for path, one in _list_files_of_things(stack) if one in own}
    return {path: httpx2.get(f"{stack.url}{path}", headers=headers, timeout=60).json() for path in paths} | {
        str(path): digest for path, digest in files.items()
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _list_files_of_things(stack: CeleryStack) -> list[tuple[Path, str]]:
    """Files below the data folder that belong to something, by its id."""
    files = (path for path in sorted(stack.folder.rglob("*")) if path.is_file())
    return [(path, found[-1]) for path in files if (found := _ID.findall(str(path.relative_to(stack.folder))))]


def _interrupt(stack: CeleryStack, tenant: _Tenant, begin: Callable[[], None]) -> Figures:
    """Kill the API twice in the middle of a removal, and let it end: while data sets leave, and while results do."""
    number = len(tenant.datasets)
    everything, gone, files = 2 * number, list[int](), list[int]()
    held = (AccountRow, tenant.accounts[number // 2]), (JobRow, tenant.jobs[number // 2].id)
    for (row, one), so_many in zip(held, (number // 2, number + 1), strict=True):
        with _hold(stack, row, one):
            begin()
            stack.wait(lambda so_many=so_many: _count_gone(stack, tenant) >= so_many)
            stack.kill_api()
            gone.append(_count_gone(stack, tenant))
            files.append(len(_find_half_removed(stack)))
        begin = stack.start_api
    began = time.monotonic()
    begin()
    stack.wait(lambda: _count_gone(stack, tenant) == everything and not list_noted(stack.database))
    seconds = round(time.monotonic() - began, 1)
    return {"of": everything, "gone_when_killed": gone, "files_left_then": files, "seconds_to_go_on": seconds}


@contextmanager
def _hold(stack: CeleryStack, row: Any, one: str) -> Iterator[None]:
    """Somebody has a row locked: whatever removes comes so far."""
    engine = create_engine(stack.postgresql.url("service"))
    with engine.begin() as holding:
        holding.execute(select(row.id).where(row.id == one).with_for_update())
        yield
    engine.dispose()


def _count_gone(stack: CeleryStack, tenant: _Tenant) -> int:
    own_datasets = DatasetRow.tenant_id == tenant.id, DatasetRow.state == "deleted"
    own_jobs = JobRow.tenant_id == tenant.id, JobRow.results_removed_at.is_not(None)
    with stack.database.session() as session:
        gone = [session.scalar(select(func.count()).where(*which)) for which in (own_datasets, own_jobs)]
    return sum(count or 0 for count in gone)


def _set_retention(stack: CeleryStack, tenant: _Tenant) -> None:
    headers = {"Authorization": f"Bearer {tenant.key}"}
    days = {"datasets": 0, "results": 0}
    httpx2.put(f"{stack.url}/v1/retention", json=days, headers=headers, timeout=60).raise_for_status()


def _ask_for_removal(stack: CeleryStack, tenant: _Tenant) -> None:
    path = f"{stack.url}/v1/tenants/{tenant.id}:remove"
    httpx2.post(path, json={"name": tenant.name}, headers=stack.headers, timeout=60).raise_for_status()


def _wait_for_receipt(stack: CeleryStack, tenant: _Tenant) -> dict[str, Any]:
    stack.wait(lambda: read(stack, f"/v1/tenants/{tenant.id}")["receipt"] is not None)
    receipt: dict[str, Any] = read(stack, f"/v1/tenants/{tenant.id}")["receipt"]
    return receipt


def _verify(stack: CeleryStack, receipt: dict[str, Any]) -> bool:
    """What a stranger does with a receipt and the key of the installation."""
    path, key = stack.folder / "receipt.json", stack.folder / "signing-key.pem"
    path.write_text(json.dumps(receipt))
    key.write_text(read(stack, "/v1/signing-key")["pem"])
    command = [sys.executable, "-m", "datalens_service.cli", "verify", str(path), "--key", str(key)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _count_removed_twice(stack: CeleryStack, *removed_from: _Tenant) -> int:
    """Removals that the journals of tenants have more than once."""
    twice = 0
    for tenant in removed_from:
        noted = [
            (one.action, one.object_id)
            for one in access_log.list_latest(stack.database, tenant.id, limit=200)[0]
            if one.action in ("removeDatasets", "removeResults")
        ]
        assert {one for _, one in noted} == {*tenant.datasets, *(job.id for job in tenant.jobs)}
        twice += len(noted) - len(set(noted))
    return twice


def _find_half_removed(stack: CeleryStack) -> list[str]:
    """List files below the data folder without a row, and rows without their file."""
    ready = DatasetRow.state != "deleted"
    live = (
        select(DatasetRow.id).where(ready),
        select(JobRow.id).where(JobRow.results_removed_at.is_(None)),
        select(UploadRow.id),
        select(IntakeRow.dataset_id),
        select(ReleasedModelRow.id),
    )
    with stack.database.session() as session:
        known = {one for query in live for one in session.scalars(query)}
        records = session.scalars(select(DatasetRow.records_path).where(ready)).all()
        made = session.execute(select(ArtifactRow.job_id, ArtifactRow.name, ArtifactRow.sha256)).all()
    files = ArtifactStore(stack.database, stack.folder)
    without_row = [
        str(path.relative_to(stack.folder)) for path, one in _list_files_of_things(stack) if one not in known
    ]
    without_file = [path for path in records if not any(Path(path).rglob("*.npy"))]
    without_file += [f"{one}/{name}" for one, name, sha in made if _digest(files.get(one, name).path) != sha]
    return without_row + without_file


def _return(stack: CeleryStack, tenant: _Tenant) -> str:
    """Make a tenant of the same name, which has the budgets that it had; return its key."""
    returned = tenants.create(stack.database, tenant.name)
    return keys.create(stack.database, KeyRequest("owner", returned.id))[1]


def _count_fresh_budgets(stack: CeleryStack, tenant: _Tenant) -> int:
    """Upload the same images again; count those on which a job is admitted or whose account is another."""
    fresh = 0
    with Client(stack.url, tenant.key, timeout=PATIENCE) as client:
        for path, account in zip(tenant.paths, tenant.accounts, strict=True):
            dataset = _upload(client, path)
            fresh += datasets.get(stack.database, dataset).account_id != account or _admits(client, dataset)
    return fresh


def _admits(client: Client, dataset_id: str) -> bool:
    try:
        client.submit(dataset_id, QUICK, accept_low_utility=True)
    except ClientError as error:
        return error.slug != "privacy-budget-exceeded"
    return True
