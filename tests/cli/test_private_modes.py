"""A whole service and a whole training run with umask 0, in folders that were open to everybody."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typer.testing import Result

from cli.service import RunningService
from datalens_service.client import Client
from deployments.deployment import MOMENTS

REQUEST = {**MOMENTS, "epsilon": 1.0, "synthetic_images": 60}
FOLDERS = {"datasets", "incoming", "uploads", "artifacts", "private", "cache", "generators"}


class Watch:
    """Looks at every file of a folder again and again: some live for a moment only."""

    def __init__(self, folder: Path) -> None:
        self.seen: set[str] = set()
        self.open: dict[str, str] = {}
        self._folder = folder
        self._ended = threading.Event()

    def look(self) -> None:
        # A walk of the operating system's kind: folders may be removed while it looks.
        walked = os.walk(self._folder)
        for path in (Path(folder) / name for folder, folders, files in walked for name in (*folders, *files)):
            with suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                self.seen.add(path.relative_to(self._folder).parts[0])
                if mode & 0o077:
                    self.open[str(path)] = f"{mode:o}"

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self.look()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.look()
            time.sleep(0.02)


def test_no_file_of_a_service_is_open_to_others(tmp_path: Path, npz: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(0o777)
    running = RunningService(data_dir, umask=0)
    watch = Watch(data_dir)
    try:
        with watch.running(), Client(running.url, running.api_key) as client:
            dataset = client.upload_dataset(npz, epsilon=5.0, confirm_classes=True)
            again = client.upload_dataset(npz, upload_id=client.upload(npz), confirm_classes=True)
            job = client.wait(client.submit(dataset.id, REQUEST), interval=0.1)
            assert job.state == "succeeded"
            made = client.download(job.id, tmp_path / "more.npz", synthetic_images=70, seed=3)
            bundle = client.download_bundle(job.id, tmp_path / "bundle.zip")
            assert made.stat().st_size > 0 < bundle.stat().st_size
            client.delete_dataset(again.id)
    finally:
        running.stop()
    assert watch.open == {}
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert watch.seen >= {"datalens.db", "datalens.db-wal", "datalens.db-shm", "ledger.log", "api-key"}
    assert watch.seen >= FOLDERS - {"generators"}


def test_what_a_tenant_leaves_with_is_closed_to_others(datalens: Callable[..., Result], tmp_path: Path) -> None:
    archive, receipt, data_dir = tmp_path / "house.tar", tmp_path / "receipt.json", tmp_path / "data"
    running = RunningService(data_dir)
    os.umask(0)
    try:
        for command in (
            ("create", "house"),
            ("export", "house", "--out", archive),
            ("remove", "house", "--yes", "--out", receipt),
        ):
            ended = datalens("tenants", *command, "--data-dir", data_dir)
            assert ended.exit_code == 0, ended.output
    finally:
        running.stop()
    assert [path.stat().st_mode & 0o777 for path in (archive, receipt)] == [0o600, 0o600]


def test_what_a_training_run_keeps_is_closed_and_what_it_releases_is_not(
    datalens: Callable[..., Result], tmp_path: Path, npz: Path
) -> None:
    out = tmp_path / "out"
    (out / "private").mkdir(parents=True)
    for folder in (out, out / "private"):
        folder.chmod(0o777)
    command = ("train", "--confirm-classes", "--data", npz, "--epsilon", 2, "--out", out, "--method", "moments")
    settings = ("--set", "subspace_dimensions=8", "--synthetic-images", 50, "--no-evaluation")
    watch = Watch(out / "private")
    os.umask(0)
    with watch.running():
        assert datalens(*command, *settings).exit_code == 0
    assert watch.open == {}
    assert (out / "private").stat().st_mode & 0o777 == 0o700
    assert watch.seen >= {"datalens.db", "ledger.log", "datasets", "artifacts", "lock"}
    assert (out / "synthetic.npz").stat().st_mode & 0o777 == 0o666
    assert (out / "synthetic.parquet").stat().st_mode & 0o777 == 0o666
    assert (out / "report.html").stat().st_mode & 0o777 == 0o600
    assert out.stat().st_mode & 0o777 == 0o777
