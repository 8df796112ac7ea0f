"""Keeps private records: in a folder of data_dir, or in an object store that holds them encrypted.

Records are plain files while they are read, since training maps them into memory. From an object store they are
fetched into a folder that goes with the job. What was uploaded before there was an object store stays where it is.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from datalens_service.base.errors import DatalensError, FileDamaged, InvalidInput, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store.datasets.files import StoreProbe, open_store, was_altered
from datalens_service.store.datasets.sealing import KEY_BYTES, altered_records, seal, unseal
from datalens_service.store.disk import remove_folder, translated

_YOUNG: Final = timedelta(days=1)
_SEALED: Final = "sealed:"
"""Begins the path of records that lie in the object store; the name of their folder follows."""


def records_folder(data_dir: Path) -> Path:
    """Return the folder of records, which has one folder per data set."""
    return data_dir.absolute() / "datasets"


class RecordStore:
    """Private records of all data sets.

    Args:
        settings: `records_url` and `records_key_file`; without them, records stay where they were decoded.

    Raises:
        InvalidInput: The file of the key cannot be read, or has another length.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder, key_file = records_folder(settings.data_dir), settings.records_key_file
        self._objects = None if key_file is None else _Objects(settings.records_url, _read_key(key_file))

    def check(self) -> None:
        """Check that the object store, if there is one, takes files and gives them back."""
        if self._objects is not None:
            self._objects.check()

    def keep(self, folder: Path) -> str:
        """Have the files of `folder` stay for good.

        Returns:
            Their path, for the row of the data set. If it begins a name in the object store, `folder` may go.
        """
        if self._objects is None:
            return str(folder)
        for path in sorted(folder.iterdir()):
            self._objects.put(path, f"{folder.name}/{path.name}")
        return f"{_SEALED}{folder.name}"

    def fetch(self, records_path: str, folder: Path) -> Path:
        """The folder with the records, on this machine.

        Args:
            folder: Private; where they go if they are not here. It is made, and is the caller's to remove.
        """
        if not records_path.startswith(_SEALED):
            return self._here(records_path)
        objects = self._remote()
        shutil.rmtree(folder, ignore_errors=True)
        names = objects.list_names(records_path.removeprefix(_SEALED))
        if not names:
            raise _lost()
        with translated("The records could not be fetched; free the disk of ⟦DATALENS_DATA_DIR⟧."):
            folder.mkdir(parents=True, mode=0o700)
            for name in names:
                objects.get(name, folder / name.rpartition("/")[2])
        return folder

    def remove(self, records_path: str) -> None:
        """Remove records wherever they are, also those that were never registered; a second call does nothing.

        Args:
            records_path: As the row of the data set has it, or the name of its folder.

        Raises:
            StoreUnavailable: Some could not be removed.
        """
        name = Path(records_path.removeprefix(_SEALED)).name
        if records_path.startswith(_SEALED) or self._objects is not None:
            self._remote().remove(name)
        with translated("Records could not be removed; look at the disk of ⟦DATALENS_DATA_DIR⟧."):
            for folder in {self._folder / name, self._here(records_path)}:
                if folder.is_absolute():
                    remove_folder(folder)

    def _here(self, records_path: str) -> Path:
        """A folder of data_dir, which may have been moved or restored elsewhere since."""
        folder = self._folder / Path(records_path).name
        return folder if folder.is_dir() else Path(records_path)

    @staticmethod
    def is_remote(records_path: str) -> bool:
        """Return True if records lie in an object store, and nowhere else."""
        return records_path.startswith(_SEALED)

    def discard(self, folder: Path) -> None:
        """Remove records that were not registered, wherever they are."""
        shutil.rmtree(folder, ignore_errors=True)
        if self._objects is not None:
            with suppress(StoreUnavailable):
                self._objects.remove(folder.name)

    def remove_unregistered(self, in_use: Callable[[str], bool], now: datetime) -> None:
        """Remove what has lain in the object store for a day and belongs to no data set in use, by its id.

        Younger records may be those of an upload that another machine registers now.

        Args:
            now: By the clock of the database.
        """
        if self._objects is None:
            return
        for name in self._objects.list_old_folders(now - _YOUNG):
            if not in_use(name):
                self._objects.remove(name)

    def _remote(self) -> _Objects:
        if self._objects is None:
            raise StoreUnavailable("The records lie in an object store; set ⟦DATALENS_RECORDS_URL⟧ and its key.")
        return self._objects


class _Objects:
    """Sealed files below a URL; an object is visible once all of it is there."""

    def __init__(self, url: str, key: bytes) -> None:
        self._files, self._root = open_store(url)
        self._probe = StoreProbe(self._files, self._root)
        self._key = key

    def check(self) -> None:
        with _answering():
            self._probe.look()

    def put(self, source: Path, name: str) -> None:
        with tempfile.NamedTemporaryFile(dir=source.parent.parent, prefix=".sealed-") as sealed:
            with (
                source.open("rb") as file,
                translated("The records could not be sealed; free the disk of ⟦DATALENS_DATA_DIR⟧."),
            ):
                seal(file, sealed, self._key, name)
                sealed.flush()
            with _answering():
                self._files.put_file(sealed.name, f"{self._root}/{name}")
                if self._files.info(f"{self._root}/{name}")["size"] != Path(sealed.name).stat().st_size:
                    raise OSError("incomplete")

    def get(self, name: str, target: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".sealed-") as sealed:
            with _answering():
                try:
                    self._files.get_file(f"{self._root}/{name}", sealed.name)
                except FileNotFoundError as error:
                    raise _lost() from error
            with Path(sealed.name).open("rb") as file, target.open("xb") as plain:
                unseal(file, plain, self._key, name)

    def list_names(self, folder: str) -> list[str]:
        return [f"{folder}/{name}" for name in self._list(f"{self._root}/{folder}")]

    def list_old_folders(self, before: datetime) -> list[str]:
        names = (name for name in self._list(self._root) if name.startswith("ds_"))
        return [name for name in names if self._newest(name) < before]

    def _newest(self, folder: str) -> datetime:
        with _answering():
            times: list[datetime] = [self._files.modified(f"{self._root}/{name}") for name in self.list_names(folder)]
            return max(times)

    def remove(self, folder: str) -> None:
        with _answering():
            if self._files.exists(f"{self._root}/{folder}"):
                self._files.rm(f"{self._root}/{folder}", recursive=True)

    def _list(self, path: str) -> list[str]:
        with _answering():
            if not self._files.exists(path):
                return []
            return sorted(str(each).rstrip("/").rpartition("/")[2] for each in self._files.ls(path, detail=False))


def _read_key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InvalidInput("The file of ⟦DATALENS_RECORDS_KEY_FILE⟧ cannot be read.") from error
    if len(key) != KEY_BYTES:
        raise InvalidInput(f"The file of ⟦DATALENS_RECORDS_KEY_FILE⟧ needs exactly {KEY_BYTES} bytes.")
    return key


def _lost() -> FileDamaged:
    return FileDamaged("Records of this data set are not in the object store; restore its bucket.")


@contextmanager
def _answering() -> Generator[None]:
    try:
        yield
    except DatalensError:
        raise
    except Exception as error:  # (each store's library has errors of its own)
        if was_altered(error):
            raise altered_records() from error
        raise StoreUnavailable(
            "The object store of the records does not answer; look at ⟦DATALENS_RECORDS_URL⟧, credentials and network."
        ) from error
