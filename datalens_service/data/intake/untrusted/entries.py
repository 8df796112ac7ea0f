"""The parts that all archives share: entries with names that are labels, never paths."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

from datalens_service.base.errors import DatalensError, InvalidDataset
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles

DAMAGED: Final = "The archive is damaged or cut off. Create it again as a plain zip or tar and upload it completely."

_NAME_BYTES: Final = 1024


@dataclass(frozen=True)
class FileEntry:
    """A file of an archive or a folder.

    Attributes:
        file_size: Bytes when unpacked, as declared.
        compress_size: Bytes inside the archive; those of the file where nothing is packed.
        place: The key by which its archive finds it.
    """

    filename: str
    file_size: int
    compress_size: int
    place: Any


@dataclass(frozen=True)
class Archive(ABC):
    """An open archive or folder in which every name passed every check.

    Attributes:
        entries: Its files, without directories, in stored order.
        folders: Its directories, without a slash at the end; not all archives have entries of them.
        backslashed: Names of entries that are stored with backslashes between folders.
    """

    entries: tuple[FileEntry, ...]
    folders: tuple[str, ...]
    backslashed: tuple[str, ...]

    @abstractmethod
    def open(self, entry: FileEntry) -> IO[bytes]:
        """Open the stream of an entry. Give its method read a size."""

    def head(self, entry: FileEntry, size: int) -> bytes:
        """Read the first `size` bytes of an entry."""
        with refusing(DAMAGED), self.open(entry) as stream:
            return stream.read(size)


@contextmanager
def refusing(sentence: str) -> Iterator[None]:
    """Turn any error of a parser on hostile bytes into one refusal.

    Raises:
        InvalidDataset: With `sentence`, for every exception that is not deliberate.
    """
    try:
        yield
    except DatalensError:
        raise
    except Exception:  # noqa: BLE001 - zipfile, NumPy and Pillow do not document what hostile bytes raise
        # The cause may quote file contents or names, so it is not chained.
        raise InvalidDataset(sentence) from None


def check_names(names: Iterable[str]) -> None:
    """Refuse names that act as paths, and names that occur twice.

    Args:
        names: Names of all entries, as stored; those of folders end with a slash.

    Raises:
        UnusableFiles: At least one is not plain, or occurs twice.
    """
    seen: set[str] = set()
    for name in names:
        if not is_plain(name):
            raise not_plain(name)
        if name.rstrip("/") in seen:
            raise _refused(name, "This name occurs twice. Rename one.")
        seen.add(name.rstrip("/"))


def check_names_differ(names: Iterable[str]) -> None:
    """Refuse names that are the same up to upper and lower case, where something names files in any case.

    Raises:
        UnusableFiles: Names both.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise _refused(f"{name}, as {other}", "Two names differ only in upper and lower case. Rename one.")


def not_plain(name: str) -> UnusableFiles:
    """Return the refusal of links, devices and names that act as paths."""
    return _refused(
        name,
        "At least one entry is a link or has a name that acts as a path (absolute, '..', control characters). Put "
        "plain files with relative names into the archive.",
    )


def unreadable_name(name: str) -> UnusableFiles:
    """Return the refusal of a name in bytes that are not known to be text: a guess would publish a wrong class name."""
    return _refused(
        name,
        "The name is not stored as UTF-8, so it cannot be read for certain. Create the archive again with UTF-8 names "
        "(most programs do, 7-Zip with -mcu), or declare their ⟦encoding⟧, for example cp850, cp437 or latin-1.",
    )


def _refused(name: str, reason: str) -> UnusableFiles:
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return UnusableFiles([BadFile(name=shown[:_NAME_BYTES], reason=reason)], 1)


def plain_name(name: str) -> str:
    """Normalize a stored name: slashes between folders, nothing that stands for the folder itself.

    `tar czf x.tar.gz .` writes `./cat/0.png`, some programs of Windows `cat\\0.png`.
    """
    slashed = name.replace("\\", "/")
    while slashed.startswith("./"):
        slashed = slashed[2:].lstrip("/")
    return slashed


def normal(name: str) -> str:
    """Compose a name, which macOS stores decomposed; the same class must have the same name everywhere."""
    return unicodedata.normalize("NFC", name)


def is_plain(name: str) -> bool:
    """Tell whether a name is relative, printable and climbs nowhere."""
    components = name.removesuffix("/").split("/")
    return (
        len(name.encode(errors="replace")) <= _NAME_BYTES
        and name.isprintable()
        and not re.match("[A-Za-z]:", name)
        and not any(component in ("", ".", "..") for component in components)
    )
