"""A folder of this machine as an archive, so that one reader serves both."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from datalens_service.data.untrusted.entries import Entry, check_names, normal, not_plain, unreadable_name
from datalens_service.data.untrusted.limits import Limits
from datalens_service.errors import InvalidDataset


@dataclass(frozen=True)
class Member:
    """A file of a folder."""

    filename: str
    file_size: int
    path: Path

    @property
    def compress_size(self) -> int:
        """Files of a folder are not packed by us."""
        return self.file_size


@dataclass(frozen=True)
class Folder:
    """A folder in which every name was looked at.

    Attributes:
        entries: Its files, and those of the folders in it, by name.
        backslashed: None: a folder has no stored names.
    """

    entries: tuple[Entry, ...]
    folders: tuple[str, ...]
    backslashed: tuple[str, ...] = ()

    def open(self, entry: Entry) -> IO[bytes]:
        """Stream of a file."""
        return cast("Member", entry).path.open("rb")

    def head(self, entry: Entry, size: int) -> bytes:
        """First `size` bytes of a file."""
        with self.open(entry) as stream:
            return stream.read(size)


def open_folder(path: Path, limits: Limits) -> Folder:
    """Walk a folder.

    Raises:
        InvalidDataset: It holds too many files, or links, or names that are no text.
    """
    entries, folders = list[Entry](), list[str]()
    for found in _walk(path):
        name = normal(Path(found.path).relative_to(path).as_posix())
        if found.is_dir(follow_symlinks=False):
            folders.append(name)
        elif found.is_file(follow_symlinks=False):
            entries.append(Member(name, found.stat(follow_symlinks=False).st_size, Path(found.path)))
        else:
            raise not_plain(name)
        if len(entries) > limits.entries:
            raise InvalidDataset(f"The folder has too many files; at most {limits.entries} are accepted.")
    check_names([entry.filename for entry in entries])
    return Folder(tuple(entries), tuple(folders))


def _walk(path: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder, by name; links are not followed."""
    for found in sorted(os.scandir(path), key=lambda one: one.name):
        try:
            found.name.encode()
        except UnicodeEncodeError:
            raise unreadable_name(os.fsencode(found.name).decode(errors="replace")) from None
        yield found
        if found.is_dir(follow_symlinks=False):
            yield from _walk(Path(found.path))
