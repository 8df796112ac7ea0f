"""Room for uploads on the disk of the data folder: what is announced is reserved before its first byte comes.

What a resumable upload still lacks is told by its row and its file (`upload_sessions.py`), what a file within a request
lacks by its name and its length. Both go when they do, so that a process which is killed reserves nothing for long.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from datalens_service.base.errors import InsufficientStorage
from datalens_service.base.settings import Settings
from datalens_service.data.intake.sandbox.sandbox import Confinement
from datalens_service.store.access import quotas
from datalens_service.store.database import Database
from datalens_service.store.datasets import upload_sessions
from datalens_service.store.datasets.record_files import records_folder
from datalens_service.store.datasets.upload_sessions import partial_files
from datalens_service.store.disk import RESERVED_BYTES, lock_folder

SPARE_BYTES: Final = 2**30
"""Left to the ledger and to everything else."""

_PREFIX: Final = "upload-"
_DECLARED: Final = re.compile(rf"{_PREFIX}(\d+)-")


def incoming_folder(data_dir: Path) -> Path:
    """Return the folder where files lie that come with a request, until it has ended."""
    return data_dir.absolute() / "incoming"


@contextmanager
def reserve(database: Database, data_dir: Path, length: int) -> Generator[None]:
    """Let the caller announce `length` bytes within the block, while nobody else reserves any.

    Raises:
        InsufficientStorage: The disk has no room for them beside what others have announced.
    """
    folder = partial_files(data_dir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock_folder(data_dir, fcntl.LOCK_EX):
        if measure_room(database, data_dir) < length:
            raise InsufficientStorage(
                f"The disk has no room for {length:,} bytes beside what other uploads have reserved."
            )
        yield


def measure_room(database: Database, data_dir: Path) -> int:
    """Return how many bytes the disk has beside what uploads have reserved and what is spared; perhaps below zero."""
    return shutil.disk_usage(data_dir).free - measure_reserved(database, data_dir) - SPARE_BYTES


def measure_reserved(database: Database, data_dir: Path) -> int:
    """Return how many bytes are announced and not on the disk yet."""
    return sum(_list_lacking(database, data_dir))


def confine(settings: Settings, folder: Path, seconds: int, reserved: int = 0) -> Confinement:
    """Hold a process that reads a stranger's file to the room that nobody has reserved on the disk of `folder`.

    Raises:
        InsufficientStorage: There is none.
    """
    is_main_disk = folder.stat().st_dev == settings.data_dir.stat().st_dev
    spare = SPARE_BYTES if is_main_disk else RESERVED_BYTES
    room = shutil.disk_usage(folder).free - reserved - spare
    if room <= 0:
        raise InsufficientStorage("The disk of ⟦DATALENS_DATA_DIR⟧ has no room to read files; free it.")
    return Confinement(settings.decode_memory_bytes, seconds, file_bytes=room, spare_bytes=spare)


def check_quota(database: Database, data_dir: Path, tenant_id: str, length: int) -> None:
    """Refuse `length` further bytes of a tenant that may not have them.

    Raises:
        QuotaExceeded: They are beyond its quota.
    """
    with database.transaction() as session:
        quotas.check_bytes(session, tenant_id, partial(measure_records, data_dir), length)


def open_incoming(data_dir: Path, length: int) -> tuple[BinaryIO, Path]:
    """Open a file for what comes with a request: it reserves `length` bytes, and is locked while this process lives."""
    folder = incoming_folder(data_dir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=f"{_PREFIX}{length}-", dir=folder)
    file = os.fdopen(descriptor, "wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file, Path(name)


def list_incoming(data_dir: Path) -> list[Path]:
    """List the files of requests that are being received, or were when their process was killed."""
    return list(incoming_folder(data_dir).glob(f"{_PREFIX}*"))


def remove_abandoned(data_dir: Path) -> None:
    """Remove files of requests whose process was killed; a living one holds a lock on its own."""
    for path in list_incoming(data_dir):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def measure_records(data_dir: Path, dataset_ids: Iterable[str]) -> int:
    """Return the bytes of records of data sets on this disk; what lies in an object store is none."""
    folders = (records_folder(data_dir) / dataset_id for dataset_id in dataset_ids)
    return sum(_size(path) for folder in folders if folder.is_dir() for path in folder.iterdir())


def _list_lacking(database: Database, data_dir: Path) -> Iterable[int]:
    """Yield the bytes of each upload that are announced and not on the disk yet."""
    folder = partial_files(data_dir)
    for upload_id, length in upload_sessions.read_lengths(database).items():
        yield max(0, length - _size(folder / upload_id))
    for path in list_incoming(data_dir):
        named = _DECLARED.match(path.name)
        yield max(0, (int(named[1]) if named else 0) - _size(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
