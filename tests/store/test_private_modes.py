"""Files of the service are for its own user alone, whatever the folder was before and whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from datalens_service.adapters import startup
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.datasets import private_modes

from .books import running_job


def readable_by_others(folder: Path) -> list[str]:
    """Everything in a folder, and the folder itself, with rights of the group or of others."""
    paths = [folder, *folder.rglob("*")]
    return [f"{path} {path.lstat().st_mode:o}" for path in paths if path.lstat().st_mode & 0o077]


@pytest.fixture
def open_world() -> Iterator[None]:
    """A process that was started with umask 0."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def old_folder(tmp_path: Path, open_world: None) -> Path:
    """A data folder that was there before, open to everybody, with files of an earlier version in it."""
    folder = tmp_path / "data"
    (folder / "datasets" / "ds_old").mkdir(parents=True, mode=0o777)
    (folder / "datasets" / "ds_old" / "train_images.npy").write_bytes(b"private")
    (folder / "api-key").write_text("dlk_old")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    assert len(readable_by_others(folder)) == 5
    return folder


def test_a_folder_that_was_open_is_closed_with_everything_in_it(old_folder: Path) -> None:
    database = startup.start(Settings(data_dir=old_folder))
    _, _, account = running_job(database)
    account.charge(0, "votes", 10)
    keys.create(database, "somebody")
    names = {path.name for path in old_folder.iterdir()}
    assert {"datalens.db", "datalens.db-wal", "datalens.db-shm", "ledger.log"} <= names
    assert readable_by_others(old_folder) == []
    (old_folder / "later").write_text("private")
    assert readable_by_others(old_folder) == []


def test_database_and_charge_log_elsewhere_are_closed_too(tmp_path: Path, open_world: None) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=f"sqlite:///{elsewhere / 'service.db'}",
        ledger_log=elsewhere / "ledger.log",
    )
    for again in range(2):
        database = startup.start(settings)
        if not again:
            _, _, account = running_job(database)
            account.charge(0, "votes", 10)
        assert {path.name for path in elsewhere.iterdir()} >= {"service.db", "service.db-wal", "ledger.log"}
        assert [item for item in readable_by_others(elsewhere) if not item.startswith(f"{elsewhere} ")] == []
        for path in elsewhere.iterdir():
            path.chmod(0o666)


def test_a_job_process_creates_nothing_that_others_can_read(tmp_path: Path, open_world: None) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    startup.start(settings)
    os.umask(0)
    startup.connect(settings)
    (settings.data_dir / "checkpoint").write_bytes(b"private")
    assert readable_by_others(settings.data_dir) == []


def test_a_folder_that_stays_open_is_refused(old_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(StoreUnavailable, match=rf"can read {old_folder}, .*chmod go-rwx"):
        startup.start(Settings(data_dir=old_folder))
    assert not (old_folder / "datalens.db").exists()


def test_a_file_system_without_modes_is_refused(old_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_args, **_options: None)
    with pytest.raises(StoreUnavailable, match="Other users of this machine can read"):
        startup.start(Settings(data_dir=old_folder))


def test_links_are_left_alone_and_lead_nowhere(old_folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    (theirs / "file").write_text("not ours")
    (old_folder / "link").symlink_to(theirs)
    (old_folder / "other").symlink_to(theirs / "file")
    (old_folder / "dangling").symlink_to(tmp_path / "nothing")
    private_modes.private_folder(old_folder)
    private_modes.tighten_all(old_folder)
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o777
    assert stat.S_IMODE((theirs / "file").stat().st_mode) == 0o666


def test_a_data_folder_may_be_a_link(old_folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(old_folder)
    startup.start(Settings(data_dir=link))
    assert readable_by_others(old_folder) == []


def test_rights_of_the_owner_stay(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("")
    script.chmod(0o4755)
    private_modes.tighten(script)
    assert stat.S_IMODE(script.stat().st_mode) == 0o4700
    private_modes.tighten(tmp_path / "nothing")


def test_the_umask_of_a_block_ends_with_it(open_world: None) -> None:
    with private_modes.private_umask() as before:
        assert (before, os.umask(0o077)) == (0, 0o077)
    assert os.umask(0) == 0
