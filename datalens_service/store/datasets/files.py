"""Keeps the bytes of artifacts: in a local folder, or any object store that fsspec reaches, S3-compatible ones first.

Both take a finished file under a name that holds its digest, and return when it is there for good: a row that is
written afterwards never points to half a file. A copy from an object store is checked against its digest.
"""

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from datalens_service.base.errors import FileDamaged, NotFound, StoreUnavailable
from datalens_service.data.intake.stored_dataset import sync_folder
from datalens_service.store.disk import list_files, translated

_KEPT_COPIES = 64
_FETCHES = 8
"""Most at once: a store that hardly answers must not have all threads that answer requests."""

_TURN_SECONDS = 2.0
_PROBE = ".datalens-probe"
_PROBE_SECONDS = 600.0
_PATIENCE: dict[str, Any] = {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 1}}
"""Timeouts of the library for S3, which also tries again by itself."""


class Files(Protocol):
    """A place for finished files."""

    def keep(self, source: Path, name: str) -> None:
        """Take the synced file `source` in as `name`; `source` is gone afterwards.

        Raises:
            StoreUnavailable: It was not taken; nothing of it is visible under `name`.
        """

    def path(self, name: str, sha256: str) -> Path:
        """Return the path of the file on this machine; it may be removed later, and is open until then.

        Raises:
            NotFound: It is not there.
            FileDamaged: It is not what was kept.
            StoreUnavailable: It cannot be read.
        """

    def remove_all_but(self, names: AbstractSet[str], folder: str) -> None:
        """Remove the files of a folder that have none of these names. Repeatable.

        Raises:
            StoreUnavailable: One could not be removed.
        """

    def remove_copies(self, named: Callable[[Collection[str]], AbstractSet[str]]) -> None:
        """Remove copies on this machine whose digests are not among those that `named` returns."""

    def check(self) -> None:
        """Check that files can be reached."""


class LocalFiles:
    """A folder of this machine, for the service's own user only."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, source: Path, name: str) -> None:
        """Rename it into place, and have the name survive a power cut."""
        target = self._root / name
        with translated("The artifact could not be written; free the disk of ⟦DATALENS_DATA_DIR⟧."):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            source.replace(target)
            sync_folder(target.parent)
            sync_folder(target.parent.parent)

    def path(self, name: str, sha256: str) -> Path:
        """Return the path of a local file, which is not read again to be compared."""
        return self._root / name

    def remove_all_but(self, names: AbstractSet[str], folder: str) -> None:
        """Remove files, and folders that are empty then: those are named by what was in them."""
        with translated("Files could not be removed; look at the disk of ⟦DATALENS_DATA_DIR⟧."):
            for path in list_files(self._root / folder):
                if str(path.relative_to(self._root)) not in names:
                    path.unlink(missing_ok=True)
                    for emptied in (path.parent, path.parent.parent):
                        with suppress(OSError):
                            emptied.rmdir()

    def remove_copies(self, named: Callable[[Collection[str]], AbstractSet[str]]) -> None:
        """There are no copies of local files."""

    def check(self) -> None:
        """The data folder is checked by itself."""


class RemoteFiles:
    """An object store, with copies of what was read lately.

    Credentials and addresses come from the environment of the store's own library, never from the URL.
    """

    def __init__(self, url: str, copies: Path, older: LocalFiles) -> None:
        self._files, self._root = open_store(url)
        self._probe = StoreProbe(self._files, self._root)
        self._turns = threading.BoundedSemaphore(_FETCHES)
        self._copies = copies
        self._older = older

    def keep(self, source: Path, name: str) -> None:
        """Put it; an object is visible once all of it is there."""
        with _translated("The artifact could not be written"):
            self._files.put_file(str(source), f"{self._root}/{name}")
            if self._files.info(f"{self._root}/{name}")["size"] != source.stat().st_size:
                raise OSError("incomplete")
        source.unlink()

    def path(self, name: str, sha256: str) -> Path:
        """A checked copy, made at the first call."""
        if (older := self._older.path(name, sha256)).exists():
            return older
        copy = self._copies / sha256
        try:
            os.utime(copy)
        except FileNotFoundError:
            self._fetch_in_turn(name, sha256, copy)
        return copy

    def remove_all_but(self, names: AbstractSet[str], folder: str) -> None:
        """Remove objects, and files from before there was a store."""
        self._older.remove_all_but(names, folder)
        with _translated("The artifact store does not remove files"):
            place = f"{self._root}/{folder}"
            for path in self._files.find(place) if self._files.exists(place) else ():
                if f"{folder}/{str(path).partition(f'{place}/')[2]}" not in names:
                    # Another process may remove it at the same time.
                    with suppress(FileNotFoundError):
                        self._files.rm_file(path)

    def remove_copies(self, named: Callable[[Collection[str]], AbstractSet[str]]) -> None:
        """Remove copies of what was removed from the store, by this machine or by another one."""
        copies = {path.name: path for path in self._copies.glob("[0-9a-f]*") if path.is_file()}
        for digest in copies.keys() - named(list(copies)):
            copies[digest].unlink(missing_ok=True)

    def check(self) -> None:
        """Check that the store takes files and gives them back."""
        with _translated("The artifact store does not take files, or does not answer"):
            self._probe.look()

    def _fetch_in_turn(self, name: str, sha256: str, copy: Path) -> None:
        if not self._turns.acquire(timeout=_TURN_SECONDS):
            raise StoreUnavailable("The artifact store is slow and many files wait for it; repeat.")
        try:
            self._fetch(name, sha256, copy)
        finally:
            self._turns.release()

    def _fetch(self, name: str, sha256: str, copy: Path) -> None:
        self._copies.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=self._copies) as folder:
            fetched = Path(folder) / "file"
            with _translated("The artifact could not be read"):
                self._files.get_file(f"{self._root}/{name}", str(fetched))
                with fetched.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != sha256:
                raise _altered()
            fetched.replace(copy)
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        copies = sorted((path for path in self._copies.iterdir() if path.is_file()), key=_last_used)
        for path in copies[:-_KEPT_COPIES]:
            path.unlink(missing_ok=True)


class StoreProbe:
    """Look at an object store: its bucket each time, and every ten minutes whether it takes a file and gives it back.

    More often would leave thousands of versions a day in a bucket that keeps them.
    """

    def __init__(self, files: Any, root: str) -> None:
        self._files, self._root = files, root
        self._next = float("-inf")

    def look(self) -> None:
        """Raise an error of the store's library, or OSError, if it does not."""
        if not self._files.exists(self._root.partition("/")[0]):
            raise OSError("no bucket")
        if time.monotonic() < self._next:
            return
        self._files.pipe_file(f"{self._root}/{_PROBE}", _PROBE.encode())
        try:
            found = self._files.cat_file(f"{self._root}/{_PROBE}")
        except FileNotFoundError as error:
            raise OSError("lost") from error
        if found != _PROBE.encode():
            raise OSError("altered")
        self._next = time.monotonic() + _PROBE_SECONDS


def files_at(url: str, data_dir: Path) -> Files:
    """The place that the settings name."""
    local = LocalFiles(data_dir / "artifacts")
    return RemoteFiles(url, data_dir / "cache" / "artifacts", local) if url else local


def open_store(url: str) -> tuple[Any, str]:
    """The file system of an object store and the path in it, without a cache of names."""
    # Here, because most installations need none of it.
    import fsspec

    options = {"config_kwargs": _PATIENCE} if url.startswith("s3://") else {}
    opened: tuple[Any, str] = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
    return opened


def was_altered(error: Exception) -> bool:
    """Return True if the library for S3 found another checksum than that of the store."""
    return type(error).__name__.endswith("ChecksumError")


def _altered() -> FileDamaged:
    return FileDamaged("A file in the artifact store was altered; restore the object.")


@contextmanager
def _translated(what: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("There is no such file; the artifact store has lost or removed it.") from error
    except Exception as error:  # (each store's library has errors of its own)
        if was_altered(error):
            raise _altered() from error
        raise StoreUnavailable(f"{what}; look at ⟦DATALENS_ARTIFACT_URL⟧, credentials and network.") from error


def _last_used(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
