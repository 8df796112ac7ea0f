"""A tenant leaves: what goes, what stays, and that nobody comes back to a budget that is new, on both databases."""

import hashlib
import io
import json
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from datalens_service.base.errors import BudgetExceeded, StateConflict, StoreUnavailable, Unauthorized
from datalens_service.proof.release_verification import verify_path
from datalens_service.services import removal, tenant_export, tenant_removal
from datalens_service.services.tenant_export import SUMS
from datalens_service.store.access import access_log, browser_sessions, keys, tenants, webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.tenants import Tenant
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, upload_sessions
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.installation import signing_key
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import DEFAULT_TENANT, ApiKeyRow, DatasetRow

from .books import claimed, new_job, read_account, state_of, verified
from .test_retention import DAY, House

pytestmark = pytest.mark.both_databases


class Lab:
    """A tenant with one of everything."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.tenant = tenants.create(house.database, "lab")
        self.key, self.plain = keys.create(house.database, KeyRequest("Ada Lovelace", self.tenant.id))
        self.dataset = house.stored(7, tenant_id=self.tenant.id)
        with house.database.transaction() as session:
            session.get_one(DatasetRow, self.dataset.id).notes = "from the clinic"
        self.job_id = house.done(self.dataset.id)
        self.upload = upload_sessions.create(house.database, self.key.id, 100, DAY)
        webhooks.create(house.database, self.tenant.id, "https://example.org/hook", ["job.succeeded"])
        browser_sessions.sign_in(house.database, self.plain)

    def proceed(self) -> Tenant | None:
        return tenant_removal.proceed(self.house.database, self.house.artifacts, self.house.settings, self.tenant.id)

    def remove(self) -> Tenant:
        tenant_removal.begin(self.house.database, self.tenant.id, actor="local")
        removed = self.proceed()
        assert removed is not None
        return removed


@pytest.fixture
def house(database: Database, tmp_path: Path) -> House:
    (tmp_path / "data").mkdir()
    return House(database, tmp_path / "data")


@pytest.fixture
def lab(house: House) -> Lab:
    return Lab(house)


def words_of(database: Database) -> str:
    """Everything that the database has in words."""
    found = []
    with database.session() as session:
        for table in ApiKeyRow.metadata.sorted_tables:
            if table.name not in ("tenants", "installation"):
                found += [str(row) for row in session.execute(select(table))]
    return "\n".join(found)


def test_everything_leaves_but_budgets(house: House, lab: Lab) -> None:
    other = house.stored(3)
    assert "Ada Lovelace" in words_of(house.database)
    removed = lab.remove()
    assert removed.removed_at is not None
    assert not any(word in words_of(house.database) for word in ("Ada Lovelace", "the clinic", "example.org"))
    assert house.list_files() == {"train_images.npy"}
    assert datasets.get(house.database, other.id).state is DatasetState.READY
    left = datasets.get(house.database, lab.dataset.id)
    assert (left.state, left.name, left.schema.class_names) == (DatasetState.DELETED, left.id, ("0", "1"))
    verified(house.database, lab.dataset.id)
    access_log.verify(house.database, lab.tenant.id)
    access_log.verify(house.database, DEFAULT_TENANT)
    assert lab.proceed() == removed


def test_nobody_gets_in_from_the_first_moment_on(house: House, lab: Lab) -> None:
    tenant_removal.begin(house.database, lab.tenant.id, actor="local")
    with house.database.connection() as connection, pytest.raises(Unauthorized):
        keys.verify(connection, lab.plain)
    with pytest.raises(StateConflict, match="nobody gets access"):
        keys.create(house.database, KeyRequest("late", lab.tenant.id))
    with pytest.raises(StateConflict):
        tenants.create(house.database, "lab")


def test_who_comes_back_finds_the_budget_that_was_spent(house: House, lab: Lab) -> None:
    job = new_job(house.database, lab.dataset.id, state_of(house.database, lab.dataset.id).remaining_units)
    lease = claimed(house.database, job.id)
    read_account(house.database, lease).charge(0, "everything", job.reserved_units)
    leases.finish(house.database, lease, JobState.CANCELLED)
    lab.remove()
    returned = tenants.create(house.database, "lab")
    assert (returned.id, returned.removed_at) == (lab.tenant.id, None)
    again = house.stored(7, tenant_id=returned.id)
    assert again.account_id == lab.dataset.account_id
    with pytest.raises(BudgetExceeded):
        new_job(house.database, again.id, 1)


def test_a_running_job_is_cancelled_and_waited_for(house: House, lab: Lab) -> None:
    lease = claimed(house.database, new_job(house.database, lab.dataset.id, 10).id)
    tenant_removal.begin(house.database, lab.tenant.id, actor="local")
    assert lab.proceed() is None
    assert Path(lab.dataset.records_path).exists()
    assert jobs.get(house.database, lease.job_id).cancel_requested
    leases.finish(house.database, lease, JobState.CANCELLED)
    removed = lab.proceed()
    assert removed is not None
    assert not Path(lab.dataset.records_path).exists()


@pytest.mark.parametrize("step", range(1, 9))
def test_a_removal_that_is_killed_is_taken_up_again(
    house: House, lab: Lab, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Killed before the commit of each of its transactions, one after the other."""
    tenant_removal.begin(house.database, lab.tenant.id, actor="local")
    transaction, made = house.database.transaction, 0

    def killed() -> Any:
        nonlocal made
        made += 1
        if made == step:
            raise KeyboardInterrupt
        return transaction()

    monkeypatch.setattr(house.database, "transaction", killed)
    with suppress(KeyboardInterrupt):
        lab.proceed()
    assert made >= step, "fewer transactions than are killed here"
    monkeypatch.undo()
    tenant_removal.proceed_all(house.database, house.artifacts, house.settings)
    assert tenants.find(house.database, "lab").removed_at is not None
    assert house.list_files() == set()
    entries, _ = access_log.list_entries(house.database, lab.tenant.id)
    actions = [(one.action, one.object_id) for one in entries if one.actor == removal.ACTOR]
    assert len(set(actions)) == len(actions)
    assert ("removeDatasets", lab.dataset.id) in actions


def test_files_that_cannot_be_removed_leave_the_removal_open(
    house: House, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_removal.begin(house.database, lab.tenant.id, actor="local")
    monkeypatch.setattr("shutil.rmtree", _broken)
    with pytest.raises(StoreUnavailable):
        lab.proceed()
    assert tenants.find(house.database, "lab").removed_at is None
    monkeypatch.undo()
    assert lab.proceed() is not None


def _broken(*_: Any, **__: Any) -> None:
    raise OSError(5, "Input/output error")


def test_the_first_tenant_stays(house: House) -> None:
    with pytest.raises(StateConflict, match="runs the service"):
        tenant_removal.begin(house.database, DEFAULT_TENANT, actor="local")


def test_the_receipt_says_what_left_and_what_stays_and_is_verified(house: House, lab: Lab, tmp_path: Path) -> None:
    receipt = lab.remove().receipt
    assert receipt is not None
    removed, kept = receipt["removed"], receipt["kept"]
    assert removed["datasets"] == [lab.dataset.id]
    assert removed["jobs"] == [lab.job_id]
    assert (removed["keys"], removed["persons"], removed["webhooks"], removed["uploads"]) == (1, 0, 1, 1)
    [account] = kept["accounts"]
    assert account["id"] == lab.dataset.account_id
    # How many distinct records there were is private.
    assert kept.keys() == {"accounts", "why_budgets", "journal", "why_journal"}
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    verdict = verify_path(path, signing_key(house.database).public)
    assert verdict.holds
    path.write_text(json.dumps({**receipt, "tenant_name": "another"}))
    assert "changed after it was signed" in str(verify_path(path).contradiction)
    overspent = {**account, "charged_units": account["limit_units"] + 1}
    path.write_text(json.dumps({**receipt, "kept": {**kept, "accounts": [overspent]}}))
    assert "more than its limit" in str(verify_path(path).contradiction)


def test_an_export_has_everything_but_secrets(house: House, lab: Lab) -> None:
    house.stored(9)
    out = io.BytesIO()
    sums = tenant_export.export_tenant(house.database, house.artifacts, house.settings, lab.tenant, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        files = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    lines = (line.partition("  ") for line in files.pop(SUMS).decode().splitlines())
    listed = {name: digest for digest, _, name in lines}
    assert listed == sums == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert files.keys() == {
        "README.txt", "tenant.json", "journal.jsonl", f"accounts/{lab.dataset.account_id}.jsonl",
        f"datasets/{lab.dataset.id}/dataset.json", f"datasets/{lab.dataset.id}/records/train_images.npy",
        f"jobs/{lab.job_id}/job.json", f"jobs/{lab.job_id}/events.jsonl",
        f"jobs/{lab.job_id}/files/card.json", f"jobs/{lab.job_id}/files/report.json",
    }  # fmt: skip
    assert files[f"datasets/{lab.dataset.id}/records/train_images.npy"] == b"private records"
    assert json.loads(files["tenant.json"])["keys"][0]["name"] == "Ada Lovelace"
    everything = b"\n".join(files.values())
    assert lab.dataset.partition_key is not None
    secrets = (lab.plain, hashlib.sha256(lab.plain.encode()).hexdigest(), lab.dataset.partition_key.hex(), "whsec_")
    assert not any(secret.encode() in everything for secret in secrets)
