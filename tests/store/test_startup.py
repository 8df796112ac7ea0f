import subprocess
import sys
from pathlib import Path

import pytest

from datalens_service.adapters import startup
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings

from .backups import back_up
from .books import running_job, state_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def test_an_empty_folder_becomes_a_store(settings: Settings) -> None:
    database = startup.start(settings)
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 10)
    assert (settings.data_dir / "ledger.log").stat().st_size > 0
    assert state_of(startup.connect(settings), dataset.id).charged_units == 10


def test_a_job_process_does_not_make_a_store(settings: Settings) -> None:
    with pytest.raises(StoreUnavailable, match="migrate"):
        startup.connect(settings)


def test_a_later_start_recovers_from_the_log(settings: Settings) -> None:
    database = startup.start(settings)
    dataset, _, account = running_job(database)
    backup = back_up(database)
    account.charge(0, "votes", 10)
    backup.restore()
    assert state_of(startup.start(settings), dataset.id).charged_units == 10


def test_the_store_starts_without_torch() -> None:
    code = "import datalens_service.adapters.startup, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
