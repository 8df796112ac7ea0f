"""The second record of every charge: an append-only log outside the database.

A charge is written and synced here before its transaction commits. So the log may know of a charge that was
never committed (an over-count, the safe side), but the database can not have a charge that the log lacks. If a
backup of the database is restored, the log still knows what was spent since (`recovery.py`).

One line per charge, JSON. A line without its line feed was cut off by a crash or a full disk: its charge was
not committed and nothing was drawn, so it is dropped. Any other line that cannot be read stops the start.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from datalens_service.errors import LedgerCorrupt, StoreUnavailable
from datalens_service.store.chain import Entry
from datalens_service.store.disk import sync_folder


class LogLine(BaseModel):
    """One charge as the log keeps it: enough to book it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    account_id: str
    dataset_id: str
    job_id: str
    step: int
    label: str
    units: int
    lease_token: int
    seq: int
    hash: str

    @classmethod
    def of(cls, charge: Entry) -> LogLine:
        """The line of a charge that is about to be committed."""
        return cls.model_validate(charge.model_dump(include=set(cls.model_fields)))


class LedgerLog:
    """The log file; several processes of one machine may append to it.

    Args:
        path: Created with its folder on the first charge.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: LogLine) -> None:
        """Write one line; it is on the disk when this returns.

        Raises:
            StoreUnavailable: The disk did not take it; the charge must not be committed.
        """
        try:
            self._append(line.model_dump_json().encode() + b"\n")
        except OSError as error:
            raise StoreUnavailable(
                "The ledger log could not be written, so nothing was charged or drawn; free its disk, then repeat."
            ) from error

    def read(self) -> list[LogLine]:
        """All complete lines, oldest first.

        Raises:
            LedgerCorrupt: A line in the middle cannot be read.
        """
        if not self.path.exists():
            return []
        complete = self.path.read_bytes().rpartition(b"\n")[0]
        return [_parse(number, raw) for number, raw in enumerate(complete.splitlines(), start=1)]

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        created = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _seek_to_last_complete_line(file)
            if file.write(data) != len(data):
                raise OSError("The ledger log took only a part of a line.")
            os.fsync(file.fileno())
        if created:
            sync_folder(self.path.parent)


def _seek_to_last_complete_line(file: BinaryIO) -> None:
    """Cut off a torn line at the end and stay there."""
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - 2**16)
    file.seek(start)
    tail = file.read(end - start)
    file.truncate(start + tail.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def _parse(number: int, raw: bytes) -> LogLine:
    try:
        return LogLine.model_validate_json(raw)
    except ValidationError as error:
        raise LedgerCorrupt(
            f"Line {number} of the ledger log cannot be read; restore the log from its own backup."
        ) from error
