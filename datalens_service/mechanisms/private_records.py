"""The wall: a run sees private records through charged sums of contributions, and in no other way.

A run holds `PrivateRecords`, a handle: it names records and has no reference to them. The driver has the vaults
(`vaults.py`) and answers one question about a handle: the sum over units of `contribution(rows, released)`, through the
door of `base`. A contribution is a function of a module, so it takes nothing along but its two arguments; its rows lie
in memory that no process can write to; what it gets of `released` is a copy. Its rows are each a function of one record
(a test tries every contribution on parts of its rows). docs/mechanisms/wall.md says what is left to read.
"""

from __future__ import annotations

import copy
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import IO, Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.progress import Tell, be_silent
from datalens_service.data.dataset import Dataset, Labels, Schema, UnitIds
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.confined import HERE, Calls, prepared
from datalens_service.privacy.randomness import NoiseSource

PRIVATE_READS = ("training",)

Released = TypeVar("Released")

# Read at once, as float64: 32 MiB.
_NUMBERS: Final = 2**22


class Rows(NamedTuple):
    """Private: records side by side, as a contribution gets them. It cannot write to them."""

    values: NDArray[Any]
    """uint8 (records, height, width, channels), or the rows that `PrivateRecords.map` computed."""
    labels: Labels
    """(records,) class of each record."""
    units: UnitIds
    """(records,) identity of each record's unit; a vault uses its own, whatever a contribution returns."""


Contribution = Callable[[Rows, Any], Any]
"""A function of rows and of a released value that returns what a mechanism sums: one row per record, and their units.
"""

Count = Callable[[int], None]
"""Called with the number of rows read so far, in whole blocks."""


def _count_nothing(_read: int) -> None: ...


class WallBroken(RuntimeError):
    """A method reached for private records in another way than by a charged sum."""


class Mapped(NamedTuple):
    """Public: the records and the function that other records are computed from."""

    source: PrivateRecords
    function: Callable[[Rows, Any], NDArray[Any]]
    released: object
    tell: Tell


class PrivateRecords:
    """A handle of records behind the wall.

    Args:
        schema: Public.
        made: The source and function they are computed from; None for the records of the data set.

    Attributes:
        schema: Public.
        made: The source and function they are computed from; None for the records of the data set.
    """

    def __init__(self, schema: Schema, made: Mapped | None = None) -> None:
        self.schema, self.made = schema, made

    def map(
        self, function: Callable[[Rows, Any], NDArray[Any]], released: object, tell: Tell = be_silent
    ) -> PrivateRecords:
        """Return a handle of the same records with values computed by a function, at the first question, and then kept.

        Args:
            function: Like a contribution; each of its rows is a function of one record.
            released: Made of earlier releases and of public values.
            tell: Called with the share of records read, if every unit has one record, so that their number is public.
                May raise to stop.
        """
        check_function(function)
        # A copy, so that the script cannot change later what the function is given.
        return PrivateRecords(self.schema, Mapped(self, function, copy.deepcopy(released), tell))


class Vault:
    """Rows that are read while a question is open.

    Args:
        schema: Public.
        read: Returns the private rows.
        rows_at_once: Public number of rows that a function gets at once. None: all of them.
        partition_key: Secret that assigns units to shards. Empty: none are assigned.
        calls: Computes contributions.
    """

    def __init__(
        self,
        schema: Schema,
        read: Callable[[], Rows],
        rows_at_once: int | None,
        partition_key: bytes = b"",
        calls: Calls = HERE,
    ) -> None:
        self.schema, self.partition_key, self.calls = schema, partition_key, calls
        self._read, self._rows_at_once = read, rows_at_once
        self._is_open = False

    @classmethod
    def from_dataset(cls, dataset: Dataset, calls: Calls = HERE) -> Vault:
        """Return a vault of the training records of a data set."""
        train = dataset.train
        rows = Rows(read_only(train.images), read_only(train.labels), read_only(train.unit_ids))
        rows_at_once = max(1, _NUMBERS // dataset.schema.dimensions)
        return cls(dataset.schema, lambda: rows, rows_at_once, dataset.partition_key, calls)

    def mapped(self, made: Mapped) -> Vault:
        """Return a vault of rows with computed values; they are in memory already, so a function gets all of them."""
        check_function(made.function)
        # The number of records is public only if every unit has one.
        told, most = made.tell if self.schema.records_per_unit == 1 else be_silent, self.schema.num_units
        kept: list[Rows] = []

        def read() -> Rows:
            if not kept:
                values = self.answer(made.function, made.released, lambda read: told(min(1.0, read / most)))
                with self.opened():
                    kept.append(self.rows()._replace(values=read_only(values)))
            return kept[0]

        return Vault(self.schema, read, None, calls=self.calls)

    def release(
        self,
        mechanism: Mechanism[Any, Released],
        contribution: Contribution,
        released: object,
        *,
        step: int,
        account: Account,
        noise: NoiseSource,
    ) -> Released:
        """Release the charged, noisy sum over units of `contribution(rows, released)`, decoded.

        Args:
            contribution: A function of a module.
            released: Made of earlier releases and of public values.

        Raises:
            WallBroken: The contribution could take more along than its arguments.
        """
        check_function(contribution)
        answer: Callable[..., Any] = partial(self.answer, contribution, copy.deepcopy(released))
        # Mapped values take the longest. Computed before the charge, they let a job be stopped without one.
        if account.replay(step) is None:
            answer = prepared(self.prepare, answer)
        return mechanism.release(answer, step=step, account=account, noise=noise)

    def rows(self) -> Rows:
        """Return all rows.

        Raises:
            WallBroken: No question is open.
        """
        if not self._is_open:
            raise WallBroken("Private records are read by a charged sum alone.")
        return self._read()

    def prepare(self) -> None:
        """Compute the values of mapped rows, unless that is done."""
        with self.opened():
            self.rows()

    def answer(self, function: Contribution, released: object, count: Count = _count_nothing) -> Any:
        """Compute a contribution on all rows for a mechanism, and replace the units it names by the vault's own."""
        parts: list[Any] = []
        with self.opened():
            rows = self.rows()
        for number, block in enumerate(self._blocks(rows), start=1):
            parts.append(self.calls.call(function, block, released))
            count(number * (self._rows_at_once or 0))
        joined = parts[0] if len(parts) == 1 else _joined(parts)
        arrays = joined if isinstance(joined, tuple) else (joined,)
        # The price is that of one bounded row per record, so neither more nor fewer are accepted.
        if {len(array) for array in arrays} != {len(rows.units)}:
            raise WallBroken("A contribution has one row for every record.")
        # The units of the upload: a contribution could name others, and spread one person over many.
        return joined._replace(units=rows.units) if hasattr(joined, "_replace") else joined

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a question, within which rows may be read."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def _blocks(self, rows: Rows) -> Iterator[Rows]:
        count = len(rows.units)
        size = self._rows_at_once or max(1, count)
        for start in range(0, max(1, count), size):
            yield Rows(*(array[start : start + size] for array in rows))


def check_function(function: Callable[..., Any]) -> None:
    """Refuse functions that may know more than their arguments: methods, closures, functions with defaults.

    Raises:
        WallBroken: It is not a function of a module.
    """
    # A closure, a default or a bound method could carry a private value from one question to the next.
    plain = isinstance(function, FunctionType) and "<locals>" not in function.__qualname__
    if not plain or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        raise WallBroken("A contribution is a function of a module, of rows and of a released value.")


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], tuple):
        return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))
    return np.concatenate(parts)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers in memory that the processor protects from writing.

    The flag of an array is not enough: its base, and a tensor of it, write past that.
    """
    if isinstance(array, np.memmap) and array.mode == "r":
        return array.view(np.ndarray)
    array = np.ascontiguousarray(array)
    if array.nbytes == 0:
        return array
    with _file_in_memory() as file:
        file.write(array.data.cast("B"))
        file.flush()
        # A page that the processor protects: a write ends the process, by whatever alias it comes.
        memory = mmap.mmap(file.fileno(), array.nbytes, prot=mmap.PROT_READ)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def _file_in_memory() -> IO[bytes]:
    """Open a file that has no name in any folder."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("records"), "wb", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
