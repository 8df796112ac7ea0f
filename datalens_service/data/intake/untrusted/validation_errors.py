"""Faults of single files of an upload: for its owner only, because names are private."""

from collections.abc import Sequence
from typing import Final

from datalens_service.base.errors import InvalidDataset
from datalens_service.base.fields import Frozen

LISTED: Final = 1000
"""Most files that are named; all are counted."""


class BadFile(Frozen):
    """One file that cannot be used. Private."""

    name: str
    reason: str


class UnusableFiles(InvalidDataset):
    """Some files of an upload cannot be used; `detail` names none of them.

    Args:
        bad_files: All of them, in order.
        checked: Number of files that were looked at.
        detail: The fault of the upload as a whole; None: the fault of the first of them.

    Attributes:
        bad_files: The first of them. Private.
        count: Number of all of them. Private.
        checked: Number of files that were looked at. Private.
    """

    def __init__(self, bad_files: Sequence[BadFile], checked: int, detail: str | None = None) -> None:
        listed = [file.model_dump() for file in bad_files[:LISTED]]
        told = {"bad_files": listed, "bad_count": len(bad_files), "checked": checked}
        super().__init__(detail or bad_files[0].reason, extra=told)
        self.bad_files = tuple(bad_files[:LISTED])
        self.count = len(bad_files)
        self.checked = checked


class ValidationErrors:
    """Collects bad files while a reader goes on to the next."""

    def __init__(self) -> None:
        self._bad_files: list[BadFile] = []
        self._checked = 0

    def good(self) -> None:
        """Count a file that can be used."""
        self._checked += 1

    def bad(self, name: str, reason: str) -> None:
        """Note a file that cannot be used."""
        self._checked += 1
        self._bad_files.append(BadFile(name=name, reason=reason))

    def add(self, others: "ValidationErrors") -> None:
        """Add the files that another collection noted."""
        self._checked += others._checked
        self._bad_files += others._bad_files

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        return tuple(self._bad_files)

    def raise_if_any(self) -> None:
        """End reading if a bad file was noted."""
        if self._bad_files:
            raise UnusableFiles(self._bad_files, self._checked)
