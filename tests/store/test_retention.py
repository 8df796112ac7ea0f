"""What is kept for some days alone: what goes, what stays, and what an interruption leaves, on both databases."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from datalens_service.base.errors import InvalidInput, LedgerCorrupt, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.services import removal, removed_files
from datalens_service.store import removals
from datalens_service.store.access import access_log, retention, tenants, webhooks
from datalens_service.store.access.retention import EVERYWHERE, Retention
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock
from datalens_service.store.datasets import datasets, record_files
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.jobs import audits, events, jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.service_tables import DeliveryRow, JobEventRow
from datalens_service.store.schema.tables import DEFAULT_TENANT, DatasetRow, JobRow

from .books import claimed, images, new_dataset, new_job, state_of, verified

pytestmark = pytest.mark.both_databases

DAY = timedelta(days=1)


class House:
    """A service without its requests."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.settings = Settings(data_dir=folder, database_url=str(database.url))
        self.artifacts = ArtifactStore(database, folder)

    def stored(self, seed: int = 0, **changes: Any) -> StoredDataset:
        """A data set with records on the disk."""
        path = record_files.records_folder(self.settings.data_dir) / datasets.new_id()
        path.mkdir(parents=True)
        (path / "train_images.npy").write_bytes(b"private records")
        return new_dataset(self.database, images(seed), dataset_id=path.name, records_path=str(path), **changes)

    def done(self, dataset_id: str) -> str:
        """A job that has charged, left files and ended."""
        job = new_job(self.database, dataset_id, 1000)
        lease = claimed(self.database, job.id)
        for name, releasable in (("card.json", True), ("report.json", False)):
            self.artifacts.put(lease, name, name.encode(), releasable=releasable, media_type="application/json")
        leases.finish(self.database, lease, JobState.SUCCEEDED)
        return job.id

    def attack(self, job_id: str) -> audits.StoredAudit:
        """An audit of the model of a job."""
        return audits.create(
            self.database,
            dataset_id=jobs.get(self.database, job_id).dataset_id,
            request={"attacks": []},
            submitted_by="key_test",
            attacked_job_id=job_id,
        )

    def age(self, row: type[Any], column: str, days: float, **where: str) -> None:
        with self.database.transaction() as session:
            now = read_clock(self.database)
            chosen = (getattr(row, name) == value for name, value in where.items())
            session.execute(update(row).where(*chosen).values({column: now - days * DAY}))

    def policy(self, tenant_id: str = EVERYWHERE, **days: int) -> None:
        retention.change(self.database, tenant_id, Retention(**days), actor="local")

    def remove(self) -> int:
        count = removal.remove_due(self.database, self.artifacts, self.settings)
        removed_files.remove_noted(self.database, self.artifacts, self.settings)
        return count

    def noted(self, tenant_id: str = DEFAULT_TENANT) -> list[tuple[str, str | None, str]]:
        entries, _ = access_log.list_entries(self.database, tenant_id)
        return [(one.action, one.object_id, one.detail) for one in entries if one.actor == removal.ACTOR]

    def list_files(self) -> set[str]:
        return {path.name for path in self.settings.data_dir.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.fixture
def house(database: Database, tmp_path: Path) -> House:
    (tmp_path / "data").mkdir()
    return House(database, tmp_path / "data")


def test_without_a_policy_nothing_goes(house: House) -> None:
    dataset = house.stored()
    house.age(DatasetRow, "created_at", 10_000)
    assert house.remove() == 0
    assert removal.preview(house.database, [DEFAULT_TENANT], 10_000 * DAY) == ()
    assert datasets.get(house.database, dataset.id).state is DatasetState.READY


def test_old_data_sets_go_with_their_records_and_their_budget_stays_spent(house: House) -> None:
    old, young = house.stored(1), house.stored(2)
    house.done(old.id)
    house.age(DatasetRow, "created_at", 31, id=old.id)
    house.policy(datasets=30)
    before = state_of(house.database, old.id)
    assert [one.object_id for one in removal.preview(house.database, [DEFAULT_TENANT], timedelta(0))] == [old.id]
    assert [one.object_id for one in removal.preview(house.database, [DEFAULT_TENANT], 31 * DAY)] == [old.id, young.id]
    assert house.remove() == 1
    assert house.noted() == [("removeDatasets", old.id, "older than 30 days")]
    assert datasets.get(house.database, old.id).state is DatasetState.DELETED
    assert datasets.get(house.database, young.id).state is DatasetState.READY
    assert not Path(old.records_path).exists()
    assert Path(young.records_path).exists()
    assert "report.json" not in house.list_files()
    assert "card.json" in house.list_files()
    after = state_of(house.database, old.id)
    assert (after.epsilon, after.epsilon_spent) == (before.epsilon, before.epsilon_spent)
    verified(house.database, old.id)
    # The same images come back to the account that has paid.
    again = house.stored(1)
    assert again.account_id == old.account_id
    assert house.remove() == 0


def test_a_job_is_not_robbed_of_what_it_reads(house: House) -> None:
    trained, aside = house.stored(1), house.stored(2)
    job = new_job(house.database, trained.id, 1000, spec={"evaluation": {"holdout": aside.id}})
    house.age(DatasetRow, "created_at", 31)
    house.policy(datasets=30)
    waiting = removal.preview(house.database, [DEFAULT_TENANT], timedelta(0))
    assert {one.object_id: one.waits_for for one in waiting} == {trained.id: job.id, aside.id: job.id}
    assert house.remove() == 0
    jobs.request_cancel(house.database, job.id)
    assert house.remove() == 2


def test_the_shorter_time_counts(house: House) -> None:
    tenant = tenants.create(house.database, "lab")
    house.policy(datasets=30, results=10)
    house.policy(tenant.id, datasets=5, results=20)
    with house.database.session() as session:
        assert retention.read_effective(session, tenant.id) == Retention(datasets=5, results=10)
        assert retention.read_effective(session, DEFAULT_TENANT) == Retention(datasets=30, results=10)


def test_results_go_and_the_job_and_its_charges_stay(house: House) -> None:
    dataset = house.stored()
    job_id = house.done(dataset.id)
    house.age(JobRow, "finished_at", 11, id=job_id)
    house.policy(results=10)
    made = house.settings.data_dir / "cache" / f"{job_id}-100-abc-def.npz"
    made.parent.mkdir()
    made.write_bytes(b"drawn for a download")
    assert house.remove() == 1
    assert house.noted() == [("removeResults", job_id, "older than 10 days")]
    assert house.artifacts.list_artifacts(job_id) == ()
    assert house.list_files() == {"train_images.npy"}
    assert jobs.get(house.database, job_id).state is JobState.SUCCEEDED
    verified(house.database, dataset.id)
    assert house.remove() == 0


def test_events_go_by_whole_days_and_the_last_one_stays(house: House) -> None:
    job_id = house.done(house.stored().id)
    running = new_job(house.database, house.stored(1).id, 1000)
    house.age(JobEventRow, "created_at", 12)
    house.policy(events=10)
    [planned] = removal.preview(house.database, [DEFAULT_TENANT], timedelta(0))
    count = len(events.list_events(house.database, job_id))
    assert (planned.kind, planned.count) == ("events", count - 1)
    assert house.remove() == count - 1
    [last] = events.list_events(house.database, job_id)
    assert last.type.last
    assert len(events.list_events(house.database, running.id)) == 1
    [(action, _, detail)] = house.noted()
    assert (action, detail.partition(",")[0]) == ("removeEvents", f"{count - 1} from before {_days_ago(house, 10)}")


def _days_ago(house: House, days: int) -> str:
    return str((read_clock(house.database) - days * DAY).date())


def test_messages_that_were_not_told_yet_stay(house: House) -> None:
    hook, _ = webhooks.create(house.database, DEFAULT_TENANT, "https://example.org/hook", ["job.succeeded"])
    told, waiting = (webhooks.send_test(house.database, hook.id) for _ in range(2))
    webhooks.settle(house.database, told.id, status=204, error=None)
    house.age(DeliveryRow, "created_at", 12)
    house.policy(deliveries=10)
    assert house.remove() == 1
    assert [one.id for one in webhooks.list_deliveries(house.database, hook.id).items] == [waiting.id]


def at(moment: datetime, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setattr(access_log, "read_database_clock", lambda _: moment)
    return monkeypatch.undo


def test_a_journal_that_was_shortened_is_verified_from_its_new_beginning(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = read_clock(house.database)
    for age in (100, 99, 50):
        undo = at(now - age * DAY, monkeypatch)
        access_log.note(house.database, DEFAULT_TENANT, actor="local", action="old", object_id=None)
        undo()
    house.policy(journal=60)
    assert house.remove() == 2
    entries, _ = access_log.list_entries(house.database, DEFAULT_TENANT)
    assert [(one.seq, one.action) for one in entries] == [(3, "old"), (4, "setRetention"), (5, "removeJournal")]
    access_log.verify(house.database, DEFAULT_TENANT)
    assert house.remove() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit_entries WHERE seq = 1",
        "DELETE FROM audit_entries WHERE seq = 2",
        "UPDATE tenants SET audit_base_seq = 3 WHERE id = 'default'",
        "DELETE FROM tenants",
    ],
)
def test_nobody_takes_entries_out_of_a_journal(house: House, statement: str) -> None:
    for _ in range(2):
        access_log.note(house.database, DEFAULT_TENANT, actor="local", action="kept", object_id=None)
    with pytest.raises(Exception, match=r"not allowed|forwards only"), house.database.transaction() as session:
        session.connection().exec_driver_sql(statement)
    with house.database.transaction() as session:
        session.connection().exec_driver_sql("UPDATE tenants SET audit_base_seq = 1 WHERE id = 'default'")
        session.connection().exec_driver_sql("DELETE FROM audit_entries WHERE seq = 1")
    # Whoever hides entries in this way cannot know the hash that the next one names.
    with pytest.raises(LedgerCorrupt, match="Entry 2 "):
        access_log.verify(house.database, DEFAULT_TENANT)


def test_a_journal_is_kept_for_a_month_at_least(house: House) -> None:
    with pytest.raises(InvalidInput, match="30 days"):
        house.policy(journal=29)


def test_files_that_cannot_be_removed_are_removed_later(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, other = house.stored(1), house.stored(2)
    house.age(DatasetRow, "created_at", 31)
    house.policy(datasets=30)
    rmtree = shutil.rmtree

    def fail(path: Path, **options: Any) -> None:
        if Path(path).name == dataset.id:
            raise OSError(5, "Input/output error")
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(StoreUnavailable):
        house.remove()
    assert Path(dataset.records_path).exists()
    assert not Path(other.records_path).exists()
    assert [one.path for one in removals.list_noted(house.database)] == [dataset.records_path]
    monkeypatch.undo()
    assert house.remove() == 0
    assert not Path(dataset.records_path).exists()
    assert removals.list_noted(house.database) == ()
    assert len(house.noted()) == 2


def test_several_processes_that_remove_at_once_do_no_harm(house: House) -> None:
    for seed in range(4):
        dataset = house.stored(seed)
        for number in range(300):
            (Path(dataset.records_path) / str(number)).touch()
        job_id = house.done(dataset.id)
        for number in range(300):
            place = house.settings.data_dir / "artifacts" / job_id / str(number)
            place.mkdir()
            (place / "left").touch()
    house.age(DatasetRow, "created_at", 31)
    house.age(JobRow, "finished_at", 31)
    house.policy(datasets=30, results=30)
    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(lambda _: house.remove(), range(4))) >= 8
    assert house.list_files() == set()
    assert removals.list_noted(house.database) == ()
    assert len(house.noted()) == 8


def test_a_removal_that_is_not_committed_removes_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process were killed just before: the entry, the row and the note come together."""
    dataset = house.stored()
    house.age(DatasetRow, "created_at", 31)
    house.policy(datasets=30)
    monkeypatch.setattr(access_log, "append", _killed)
    with pytest.raises(KeyboardInterrupt):
        house.remove()
    monkeypatch.undo()
    assert datasets.get(house.database, dataset.id).state is DatasetState.READY
    assert removals.list_noted(house.database) == ()
    assert Path(dataset.records_path).exists()
    assert house.remove() == 1


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_findings_of_audits_go_and_a_model_that_is_attacked_stays(house: House) -> None:
    dataset = house.stored()
    attacked = house.done(dataset.id)
    ended = house.attack(attacked)
    lease = claimed(house.database, ended.job.id)
    audits.store_result(house.database, lease, {"found": 7}, b"picture")
    leases.finish(house.database, lease, JobState.SUCCEEDED)
    running = house.attack(attacked)
    for job_id in (attacked, ended.job.id):
        house.age(JobRow, "finished_at", 11, id=job_id)
    house.policy(results=10)
    waits = {one.object_id: one.waits_for for one in removal.preview(house.database, [DEFAULT_TENANT], timedelta(0))}
    assert waits == {attacked: running.job.id, ended.job.id: None}
    assert house.remove() == 1
    found = audits.get(house.database, ended.job.id)
    assert (found.result, found.picture) == (None, None)
    assert len(house.artifacts.list_artifacts(attacked)) == 2
