"""The second record of every charge: an append-only log outside the database.

A charge is written and synced here before its transaction commits. So the log may know of a charge that was
never committed (an over-count, the safe side), but the database can not have a charge that the log lacks. If a
backup of the database is restored, the log still knows what was spent since (`recovery.py`).

The database keeps, per account, the length of the log that it has accounted for. Whoever appends reads what lies
behind that length under the same lock: a charge of the same account there is one that this database has forgotten,
so nothing is written (`LogMismatch`) until it is booked. A log that is shorter than that was cut or replaced.

One line per charge, JSON. A line without its line feed was cut off by a crash or a full disk: its charge was
not committed and nothing was drawn, so it is dropped. A line that begins with # was withdrawn. Any other line that
cannot be read stops the start.
"""

from __future__ import annotations

import errno
import fcntl
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.data.intake.stored_dataset import sync_folder
from datalens_service.proof.hash_chain import Entry
from datalens_service.store.disk import unavailable

_WITHDRAWN = b"#"
"""First byte of a line whose charge did not happen."""

_NOT_WRITTEN = "The ledger log could not be written, so nothing was charged or drawn; free its disk, then repeat."
_REPLACED = "The ledger log is not the one this database has charged to; restore it, then restart."
_NOT_READ = "The ledger log could not be read, so nothing was charged or drawn; look at its disk, then repeat."


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
    config=ConfigDict(extra="forbid", serialize_by_alias=True, validate_by_name=True),
)
class LogLine:
    """One charge as the log keeps it: enough to book it again."""

    account_id: str
    dataset_id: str
    job_id: str
    step: int
    label: str
    ledger_units: int = Field(alias="units")
    slack: int = 0
    lease_token: int
    seq: int
    hash: str

    @classmethod
    def from_entry(cls, charge: Entry) -> LogLine:
        """The line of a charge that is about to be committed."""
        return _LINE.validate_python(charge.model_dump(include=set(cls.__slots__)))

    def encoded(self) -> bytes:
        """Return the line as it stands in the file."""
        # A slack of 0 is left out: lines of charges without one are as they always were.
        return _LINE.dump_json(self, exclude_defaults=True) + b"\n"


_LINE: Final = TypeAdapter(LogLine)


class LogSlice(NamedTuple):
    """The part of the log behind a given length.

    Attributes:
        lines: Complete ones, oldest first.
        length: Bytes of the log up to the end of the last of them.
    """

    lines: list[LogLine]
    length: int


class LogIndex(NamedTuple):
    """The places of accounts' lines: a start keeps 8 bytes for each, and reads those of one account at a time.

    Attributes:
        starts: Bytes before each line, by account, oldest first.
        dataset_ids: All data sets that lines name.
        length: Bytes of the log up to the end of the last line.
    """

    starts: Mapping[str, Sequence[int]]
    dataset_ids: set[str]
    length: int


class LogMismatch(Exception):
    """The log is not as an account left it: it has further charges of the account, or was cut or replaced."""

    def __init__(self, account_id: str) -> None:
        super().__init__(account_id)
        self.account_id = account_id


class ChargeLog:
    """The log file; several processes of one machine may append to it.

    Args:
        path: Created with its folder on the first charge.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: LogLine, checked: int) -> int:
        """Write the line of a charge; the length of the log with it, which is on the disk when this returns.

        Args:
            checked: Bytes of the log that the account of the charge has accounted for.

        Raises:
            LogMismatch: The log is not as the account left it; nothing was written.
            StoreUnavailable: The disk did not take it; the charge must not be committed.
        """
        with self._locked() as file:
            _check_as_left(line.account_id, lambda: _portion(file, checked, line.account_id))
            return _write(file, line)

    def restore(self, lost: Sequence[LogLine], length: int) -> None:
        """Write lines that the log has lost, unless another process has written them.

        Args:
            length: Length of the log when they were looked for.

        Raises:
            LedgerCorrupt: The log is shorter now.
            StoreUnavailable: The disk did not take it.
        """
        with self._locked() as file:
            written = {line.hash for line in _portion(file, length).lines}
            for line in lost:
                if line.hash not in written:
                    _write(file, line)

    def withdraw(self, line: LogLine, end: int) -> None:
        """Mark a line whose charge is certain not to be committed, so that it is not read any more.

        Args:
            line: The line that was appended.
            end: The length that `append` returned.

        Raises:
            StoreUnavailable: The disk did not take it.
        """
        data = line.encoded()
        with self._locked() as file:
            file.seek(end - len(data))
            if file.read(len(data)) == data:
                _mark_withdrawn(file, end - len(data))

    def check(self, account_id: str, checked: int) -> int:
        """Length of the log, unless an account left it otherwise.

        Args:
            checked: Bytes of the log that it has accounted for.

        Raises:
            LogMismatch: It is not.
            StoreUnavailable: The disk does not answer.
        """
        return _check_as_left(account_id, lambda: self.read_after(checked, account_id)).length

    def read(self) -> list[LogLine]:
        """Return all complete lines, oldest first.

        Raises:
            LedgerCorrupt: A line in the middle cannot be read.
            StoreUnavailable: The disk does not answer.
        """
        return self.read_after(0).lines

    def read_after(self, checked: int, account_id: str | None = None) -> LogSlice:
        """Read what lies behind the first `checked` bytes, of all accounts or of one.

        Raises:
            LedgerCorrupt: There are not so many, or a line there cannot be read.
            StoreUnavailable: The disk does not answer.
        """
        with self._reading() as file:
            return _portion(file, checked, account_id)

    def index(self, checked: int = 0) -> LogIndex:
        """Return where the lines behind the first `checked` bytes are.

        Raises:
            LedgerCorrupt: There are not so many, or a line there cannot be read.
            StoreUnavailable: The disk does not answer.
        """
        starts: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
        dataset_ids, length = set[str](), checked
        with self._reading() as file:
            for end, line in _scan(file, checked):
                if line is not None:
                    starts[line.account_id].append(length)
                    dataset_ids.add(line.dataset_id)
                length = end
        return LogIndex(starts, dataset_ids, length)

    def read_indexed(self, index: LogIndex, account_id: str) -> LogSlice:
        """The lines of an account in `index`, but for those that have been withdrawn since.

        Raises:
            LedgerCorrupt: They are not there any more.
            StoreUnavailable: The disk does not answer.
        """
        with self._reading() as file:
            reader, lines = BufferedReader(file), list[LogLine]()
            for start in index.starts.get(account_id, ()):
                reader.seek(start)
                if not (raw := reader.readline()).startswith(_WITHDRAWN):
                    lines.append(_parse(f"1 behind byte {start}", raw))
            if any(line.account_id != account_id for line in lines):
                raise LedgerCorrupt(_REPLACED)
        return LogSlice(lines, index.length)

    @contextmanager
    def _reading(self) -> Iterator[FileIO]:
        """The file; an empty one before the first charge."""
        try:
            with self._open() as file:
                yield file
        except OSError as error:
            raise unavailable(error, _NOT_READ) from error

    def _open(self) -> FileIO:
        try:
            return self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return Path(os.devnull).open("rb", buffering=0)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """The file without a torn last line, for this process alone."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            created = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _cut_torn_line(file)
                yield file
            if created:
                sync_folder(self.path.parent)
        except OSError as error:
            raise unavailable(error, _NOT_WRITTEN) from error


def _write(file: FileIO, line: LogLine) -> int:
    """Length of the log with the line; if the disk does not take all of it, none of it stays."""
    start = file.seek(0, os.SEEK_END)
    data = line.encoded()
    try:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "The ledger log took only a part of a line.")
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            _take_back(file, start, data)
        raise
    return start + len(data)


def _take_back(file: FileIO, start: int, data: bytes) -> None:
    """Undo a write. A complete line may have been read by others, who remember the length: it is not cut off."""
    if file.seek(0, os.SEEK_END) < start + len(data):
        file.truncate(start)
    else:
        _mark_withdrawn(file, start)


def _mark_withdrawn(file: FileIO, start: int) -> None:
    """Overwrite one byte, in place: a full disk takes it, and no crash can leave half of it."""
    file.seek(start)
    file.write(_WITHDRAWN)
    os.fsync(file.fileno())


def _cut_torn_line(file: FileIO) -> None:
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - 2**16)
    file.seek(start)
    tail = file.read(end - start)
    complete = start + tail.rfind(b"\n") + 1
    if complete < end:
        file.truncate(complete)


def _portion(file: FileIO, checked: int, account_id: str | None = None) -> LogSlice:
    """The complete lines behind the first `checked` bytes, of all accounts or of one."""
    lines, length = list[LogLine](), checked
    for end, line in _scan(file, checked):
        length = end
        if line is not None and account_id in (None, line.account_id):
            lines.append(line)
    return LogSlice(lines, length)


def _scan(file: FileIO, checked: int) -> Iterator[tuple[int, LogLine | None]]:
    """Yield the end of each complete line behind the first `checked` bytes, and the line unless it was withdrawn.

    Reads nothing before them but the line feed.
    """
    end = file.seek(0, os.SEEK_END)
    _check_length(end, checked)
    before, number, length = min(1, checked), 0, checked
    file.seek(checked - before)
    reader = BufferedReader(file)
    try:
        if reader.read(before).strip(b"\n"):
            raise LedgerCorrupt(_REPLACED)
        place = f" behind byte {checked}" if checked else ""
        while (raw := reader.readline(end - length)).endswith(b"\n"):
            number, length = number + 1, length + len(raw)
            yield length, None if raw.startswith(_WITHDRAWN) else _parse(f"{number}{place}", raw)
    finally:
        reader.detach()


def _check_as_left(account_id: str, read: Callable[[], LogSlice]) -> LogSlice:
    """Return what was read for the account; refuse it unless it is empty."""
    try:
        portion = read()
    except LedgerCorrupt as error:
        raise LogMismatch(account_id) from error
    if portion.lines:
        raise LogMismatch(account_id)
    return portion


def _check_length(length: int, checked: int) -> None:
    """An append-only file does not shrink: somebody cut or replaced it."""
    if length < checked:
        raise LedgerCorrupt("The ledger log is shorter than this database has charged to; restore it, then restart.")


def _parse(number: str, raw: bytes) -> LogLine:
    try:
        return _LINE.validate_json(raw)
    except ValidationError as error:
        raise LedgerCorrupt(
            f"Line {number} of the ledger log cannot be read; restore the log from its own backup."
        ) from error
