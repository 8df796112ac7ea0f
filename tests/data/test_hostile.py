"""Nothing in the corpus is read, runs, fills the memory or takes long."""

import time
import tracemalloc
import warnings
from pathlib import Path

import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.data import read_upload

from .hostile import CANARY, CORPUS


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "upload"
    path.write_bytes(CORPUS[name].make())
    tracemalloc.start()
    started = time.process_time()
    with warnings.catch_warnings(action="ignore"), pytest.raises(InvalidDataset, match=CORPUS[name].says):
        read_upload(path)
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # tracemalloc slows Python down; without it each takes a fraction of this.
    assert seconds < 10
    assert peak < 256 * 2**20
    assert not (tmp_path / CANARY).exists()
