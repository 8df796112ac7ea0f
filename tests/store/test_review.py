"""Uploads in review: killed, raced, expired and deleted at any moment, there is one data set or none."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sqlalchemy import func, select

from datalens_service.base.audience import Private
from datalens_service.base.clock import utc_now
from datalens_service.base.errors import InvalidDelta, InvalidSpec, NotFound, StateConflict
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Split, Upload
from datalens_service.data.intake.sandbox.exchange import Counts
from datalens_service.data.intake.sandbox.sandbox import Decoded
from datalens_service.data.intake.stored_dataset import load_dataset, save_dataset
from datalens_service.services import ingestion, removal, removed_files
from datalens_service.services.dataset_declaration import BudgetForm
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, uploads, views
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.datasets.uploads import StoredUpload
from datalens_service.store.schema.tables import AccountRow, DatasetRow, IntakeRow, LedgerEntryRow, RecordFingerprintRow

from .books import DELTA, EPSILON, images, new_dataset, schema, verified
from .test_concurrency import together
from .test_files import Bucket, bucket, s3

__all__ = ["bucket", "s3"]

AS_DECLARED = BudgetForm()
FORM: dict[str, Any] = {"name": "pets", "epsilon": EPSILON, "delta": DELTA}
COUNTED = (AccountRow, DatasetRow, LedgerEntryRow, RecordFingerprintRow)

BEFORE_KEEPING = "before its records are kept"
KEPT = "once its records are kept"
BEFORE_COMMIT = "before the transaction is committed"
AFTER_COMMIT = "after the transaction is committed"
POINTS = (BEFORE_KEEPING, KEPT, BEFORE_COMMIT, AFTER_COMMIT)


class House(NamedTuple):
    """A service with an uploader."""

    database: Database
    settings: Settings
    key_id: str

    @property
    def folder(self) -> Path:
        return ingestion.records_folder(self.settings.data_dir)

    def receive(self, **form: Any) -> str:
        """Id of an upload that was read."""
        upload = uploads.begin_request(self.database, self.key_id, {**FORM, **form})
        ingestion.receive(self.database, self.settings, Path("upload"), upload)
        return upload.dataset_id

    def confirm(self, dataset_id: str, budget: BudgetForm = AS_DECLARED) -> None:
        ingestion.confirm(self.database, self.settings, dataset_id, budget)

    def remove(self, dataset_id: str) -> None:
        removal.remove_dataset(self.database, self.artifacts, self.settings, dataset_id)

    def restart(self) -> None:
        removal.remove_leftovers(self.database, self.artifacts, self.settings)

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.database, self.settings.data_dir)

    def state(self, dataset_id: str) -> DatasetState:
        return views.get(self.database, dataset_id).state

    def rows(self) -> list[int]:
        """Of everything that a budget leaves."""
        with self.database.session() as session:
            return [session.scalar(select(func.count()).select_from(table)) or 0 for table in COUNTED]

    def held(self) -> set[str]:
        """Folders of records on this machine, finished or not."""
        return {path.name for path in self.folder.glob("*ds_*")}

    def check_ready(self, dataset_id: str) -> None:
        """It is a data set like any other, and there is one of it."""
        dataset = datasets.get(self.database, dataset_id)
        assert self.state(dataset_id) is uploads.get(self.database, dataset_id).state is DatasetState.READY
        assert dataset.partition_key
        verified(self.database, dataset_id)
        records = RecordStore(self.settings).fetch(dataset.records_path, self.settings.data_dir / "fetched")
        assert len(load_dataset(records).train.labels) == 20
        shutil.rmtree(self.settings.data_dir / "fetched", ignore_errors=True)


@pytest.fixture
def house(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    # What the confined process leaves, without the process: it is another test's.
    monkeypatch.setattr(ingestion, "decode", decoded)
    key, _ = keys.create(database, "laptop")
    return House(database, Settings(data_dir=tmp_path / "data"), key.id)


@pytest.fixture
def remote(house: House, bucket: Bucket, tmp_path: Path) -> House:
    """The same with an object store for records."""
    key = tmp_path / "records.key"
    key.write_bytes(os.urandom(32))
    store = {"records_url": f"s3://{bucket.name}/private", "records_key_file": key}
    return house._replace(settings=house.settings.model_copy(update=store))


def decoded(_path: Path, folder: Path, *_: object, **_declared: object) -> Decoded:
    records = Split(images(), np.arange(20, dtype=np.int64) % 2)
    upload = Upload(schema(), records, None)
    save_dataset(upload, folder / "records")
    counts = Counts(train=20, test=0, classes={"cat": 10, "dog": 10}, duplicates=0)
    return Decoded("npz", folder / "records", upload, Private(counts), ())


def test_an_upload_in_review_has_a_report_and_its_records_and_nothing_else(house: House) -> None:
    waiting = house.receive()
    assert house.state(waiting) is DatasetState.REVIEW
    assert (house.rows(), house.held()) == ([0] * len(COUNTED), {waiting})
    house.restart()
    assert house.held() == {waiting}
    with pytest.raises(StateConflict, match="waits for the confirmation"):
        datasets.get(house.database, waiting)
    house.confirm(waiting)
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


def test_what_was_confirmed_beforehand_is_ready_at_once(house: House) -> None:
    for form in ({"confirm_classes": True}, {"class_names": ["cat", "dog"]}):
        house.check_ready(house.receive(**form))
    assert house.state(house.receive(class_names=["dog", "cat"])) is DatasetState.REVIEW, "those are other names"


def test_a_confirmation_may_be_repeated_with_the_same_budget_only(house: House) -> None:
    waiting = house.receive()
    for _ in range(2):
        house.confirm(waiting, BudgetForm(epsilon=2.0, delta=DELTA))
    with pytest.raises(StateConflict, match="as it was named then"):
        house.confirm(waiting, BudgetForm(epsilon=3.0, delta=DELTA))
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


def test_a_refused_confirmation_leaves_the_upload_as_it_was(house: House) -> None:
    known = new_dataset(house.database)
    before = house.rows()
    waiting = house.receive(epsilon=2 * EPSILON)
    with pytest.raises(StateConflict, match="have a budget already"):
        house.confirm(waiting)
    with pytest.raises(StateConflict, match="have a budget already"):
        house.confirm(waiting, BudgetForm(epsilon=None, delta=2 * DELTA))
    assert (house.rows(), house.state(waiting), house.held()) == (before, DatasetState.REVIEW, {waiting})
    house.confirm(waiting, BudgetForm(delta=DELTA))
    house.check_ready(waiting)
    assert datasets.linked(house.database, waiting) == (known.id,)


@pytest.mark.parametrize(("budget", "error"), [({"epsilon": None}, InvalidSpec), ({"delta": 0.5}, InvalidDelta)])
def test_a_budget_that_cannot_be_opened_is_replaced(
    house: House, budget: dict[str, float | None], error: type[Exception]
) -> None:
    waiting = house.receive(**{"epsilon": None, **budget})
    with pytest.raises(error):
        house.confirm(waiting, BudgetForm(**{"epsilon": 1.0, **budget}))
    assert (house.rows(), house.state(waiting)) == ([0] * len(COUNTED), DatasetState.REVIEW)
    house.confirm(waiting, BudgetForm(epsilon=1.0))
    house.check_ready(waiting)


def test_a_refused_upload_that_was_confirmed_beforehand_leaves_nothing(house: House) -> None:
    new_dataset(house.database)
    before = house.rows()
    with pytest.raises(StateConflict, match="have a budget already"):
        house.receive(epsilon=2 * EPSILON, confirm_classes=True)
    assert (house.rows(), house.held()) == (before, set())


def test_a_deleted_upload_is_gone_and_cannot_be_confirmed(house: House) -> None:
    waiting = house.receive()
    for _ in range(2):
        house.remove(waiting)
    assert (house.held(), house.rows()) == (set(), [0] * len(COUNTED))
    assert uploads.get(house.database, waiting).report is None
    with pytest.raises(StateConflict, match="nothing to confirm: the upload is deleted"):
        house.confirm(waiting)
    with pytest.raises(NotFound):
        house.confirm("ds_unknown")


def let_expire(house: House, dataset_id: str) -> None:
    with house.database.transaction() as session:
        row = session.get_one(IntakeRow, dataset_id)
        assert row.report is not None
        past = (utc_now() - timedelta(seconds=1)).isoformat()
        row.report = {**row.report, "review": {**row.report["review"], "expires_at": past}}


def test_an_upload_that_waits_too_long_goes_with_its_report(house: House) -> None:
    late, young, opened = house.receive(), house.receive(), house.receive()
    let_expire(house, late)
    house.confirm(opened)
    removal.remove_expired(house.database, house.artifacts, house.settings)
    removed_files.remove_noted(house.database, house.artifacts, house.settings)
    assert house.held() == {young, opened}
    assert (house.state(late), house.state(young)) == (DatasetState.DELETED, DatasetState.REVIEW)
    assert uploads.get(house.database, late).report is None


def test_time_is_up_while_it_is_confirmed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for what has expired has read its state before: a data set is not removed."""
    waiting = house.receive()
    let_expire(house, waiting)
    seen = uploads.in_state(house.database, DatasetState.REVIEW)
    house.confirm(waiting)
    monkeypatch.setattr(uploads, "in_state", lambda *_: seen)
    removal.remove_expired(house.database, house.artifacts, house.settings)
    removed_files.remove_noted(house.database, house.artifacts, house.settings)
    house.check_ready(waiting)


def test_of_many_confirmations_one_opens_the_budget_and_all_succeed(house: House) -> None:
    waiting = house.receive()
    assert together([lambda: house.confirm(waiting)] * 6) == [None] * 6
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


@pytest.mark.both_databases
def test_confirmations_with_several_budgets_open_one_of_them(house: House) -> None:
    waiting = house.receive()
    budgets = [BudgetForm(epsilon=float(number), delta=DELTA) for number in range(1, 5)]
    outcomes = together([lambda budget=budget: house.confirm(waiting, budget) for budget in budgets])
    assert [isinstance(outcome, StateConflict) for outcome in outcomes].count(True) == 3
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


@pytest.mark.both_databases
def test_confirmations_on_several_machines_open_one_budget(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no lock on a folder reaches, the losers are told to look again."""
    monkeypatch.setattr(ingestion, "_alone_with", lambda _folder: nullcontext())
    waiting = house.receive()
    outcomes = together([lambda: house.confirm(waiting)] * 4)
    assert outcomes.count(None) >= 1
    assert all(outcome is None or "a moment ago" in outcome.detail for outcome in outcomes)
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


@pytest.mark.both_databases
@pytest.mark.parametrize("attempt", range(4))
def test_it_is_deleted_while_it_is_confirmed(house: House, attempt: int) -> None:
    waiting = house.receive()
    confirm, remove = (lambda: house.confirm(waiting)), (lambda: house.remove(waiting))
    together([confirm, remove] if attempt % 2 else [remove, confirm])
    assert house.state(waiting) is DatasetState.DELETED
    assert house.held() == set()
    accounts, made, *_ = house.rows()
    assert (accounts, made) in ((0, 0), (1, 1))
    if made:
        assert datasets.get(house.database, waiting).partition_key is None


@pytest.mark.both_databases
def test_it_is_deleted_within_the_confirmation_on_another_machine(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock on a folder stands between them there: the transaction decides."""
    waiting = house.receive()
    create = datasets.create

    def create_late(*given: Any, **named: Any) -> Any:
        uploads.delete(house.database, waiting)
        return create(*given, **named)

    monkeypatch.setattr(datasets, "create", create_late)
    with pytest.raises(StateConflict, match="deleted by now"):
        house.confirm(waiting)
    assert (house.rows(), house.held()) == ([0] * len(COUNTED), set())


def test_it_is_deleted_while_it_is_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ({}, {"confirm_classes": True}):
        upload = _noted(house, form)

        def decode_late(*given: Any, _id: str = upload.dataset_id, **named: Any) -> Decoded:
            house.remove(_id)
            return decoded(*given, **named)

        monkeypatch.setattr(ingestion, "decode", decode_late)
        with pytest.raises(StateConflict, match="deleted by now"):
            ingestion.receive(house.database, house.settings, Path("upload"), upload)
        assert (house.state(upload.dataset_id), house.held()) == (DatasetState.DELETED, set())
        assert house.rows() == [0] * len(COUNTED)


def _noted(house: House, form: dict[str, Any]) -> StoredUpload:
    """An upload that came in chunks and waits to be read."""
    upload = uploads.begin_request(house.database, house.key_id, {**FORM, **form})
    with house.database.transaction() as session:
        uploads.settle(session, upload, DatasetState.VALIDATING, None, upload.form)
    return upload


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(done: Callable[..., Any]) -> Callable[..., None]:
    def wrapped(*given: Any, **named: Any) -> None:
        done(*given, **named)
        _die()

    return wrapped


FAULTS: dict[str, Callable[[], None]] = {
    BEFORE_KEEPING: lambda: setattr(RecordStore, "keep", _die),
    KEPT: lambda: setattr(RecordStore, "keep", _then_die(RecordStore.keep)),
    BEFORE_COMMIT: lambda: setattr(uploads, "settle", _then_die(uploads.settle)),
    AFTER_COMMIT: lambda: setattr(datasets, "create", _then_die(datasets.create)),
}


def killed(house: House, point: str, action: Callable[[House], Any]) -> None:
    """Do it in a process of its own that gets SIGKILL at the point."""

    def work() -> None:
        FAULTS[point]()
        action(house._replace(database=Database(house.database.url, house.database.log)))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_a_confirmation_that_was_killed_is_repeated(house: House, point: str) -> None:
    waiting = house.receive()
    killed(house, point, lambda it: it.confirm(waiting))
    opened = point == AFTER_COMMIT
    assert house.state(waiting) is (DatasetState.READY if opened else DatasetState.REVIEW)
    assert house.rows()[:2] == [opened, opened]
    house.restart()
    house.confirm(waiting)
    house.check_ready(waiting)
    assert house.rows()[:2] == [1, 1]


@pytest.mark.parametrize("point", POINTS)
def test_a_confirmation_that_was_killed_leaves_nothing_once_it_is_deleted(house: House, point: str) -> None:
    waiting = house.receive()
    killed(house, point, lambda it: it.confirm(waiting))
    house.remove(waiting)
    assert (house.state(waiting), house.held()) == (DatasetState.DELETED, set())
    house.restart()
    assert house.held() == set()


@pytest.mark.parametrize("point", POINTS)
def test_an_upload_that_was_killed_while_it_was_opened_is_read_again(house: House, point: str) -> None:
    upload = _noted(house, {"confirm_classes": True})
    killed(house, point, lambda it: ingestion.receive(it.database, it.settings, Path("upload"), upload))
    house.restart()
    if point == AFTER_COMMIT:
        assert house.held() == {upload.dataset_id}
    else:
        assert (house.state(upload.dataset_id), house.held()) == (DatasetState.VALIDATING, set())
        ingestion.receive(house.database, house.settings, Path("upload"), upload)
    house.check_ready(upload.dataset_id)
    assert house.rows()[:2] == [1, 1]


def test_an_upload_that_was_killed_before_its_review_was_noted_leaves_nothing(house: House) -> None:
    upload = uploads.begin_request(house.database, house.key_id, FORM)
    killed(house, BEFORE_COMMIT, lambda it: ingestion.receive(it.database, it.settings, Path("upload"), upload))
    assert house.held() > {upload.dataset_id}
    house.restart()
    assert (house.held(), house.rows()) == (set(), [0] * len(COUNTED))


def test_records_go_to_the_object_store_with_the_confirmation(remote: House, bucket: Bucket) -> None:
    waiting = remote.receive()
    assert (bucket.contents(), remote.held()) == ({}, {waiting})
    remote.confirm(waiting)
    remote.check_ready(waiting)
    assert remote.held() == set()
    remote.remove(waiting)
    assert bucket.contents() == {}


@pytest.mark.parametrize("point", [KEPT, AFTER_COMMIT])
def test_a_confirmation_killed_beside_the_object_store_leaves_one_copy(
    remote: House, bucket: Bucket, point: str
) -> None:
    waiting = remote.receive()
    killed(remote, point, lambda it: it.confirm(waiting))
    assert (len(bucket.contents()) >= 3, remote.held()) == (True, {waiting})
    remote.restart()
    assert remote.held() == (set() if point == AFTER_COMMIT else {waiting})
    remote.confirm(waiting)
    remote.restart()
    assert remote.held() == set()
    remote.check_ready(waiting)


def test_a_discarded_upload_takes_what_a_killed_confirmation_left_in_the_store(remote: House, bucket: Bucket) -> None:
    waiting = remote.receive()
    killed(remote, KEPT, lambda it: it.confirm(waiting))
    remote.remove(waiting)
    assert (bucket.contents(), remote.held()) == ({}, set())
