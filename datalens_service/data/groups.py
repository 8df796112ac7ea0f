"""`metadata.csv` beside class folders: which images belong to one privacy unit.

The convention of image folders elsewhere: a column `file_name`, relative to the file itself, and here a column
`group`. Other columns are ignored; a table without these two is refused, since its labels would not be read.
"""

from __future__ import annotations

import csv
import io
import posixpath
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping

from datalens_service.data.archive import Archive, refusing
from datalens_service.data.dataset import UnitIds
from datalens_service.data.units import identities
from datalens_service.errors import InvalidDataset

METADATA = "metadata.csv"

_LARGEST_BYTES = 2**26
_FILE, _GROUP = "file_name", "group"


def read_groups(archive: Archive) -> dict[str, str] | None:
    """Group of every file that a metadata.csv names, by its name in the archive; None without such a table.

    Raises:
        InvalidDataset: A table is too large, not UTF-8, or names a file twice or without a group.
    """
    found: dict[str, str] = {}
    tables = [entry for entry in archive.entries if _is_metadata(entry.filename)]
    for entry in tables:
        _read_table(archive, entry, found)
    return found if tables else None


def units_of(names: Iterable[str], groups: Mapping[str, str]) -> UnitIds:
    """Identity of the unit of every file.

    Raises:
        InvalidDataset: A file has no group.
    """
    try:
        return identities([groups[_normal(name)] for name in names])
    except KeyError:
        # Without the name of the file: it is private.
        raise InvalidDataset("metadata.csv must name every training image with its group.") from None


def _is_metadata(name: str) -> bool:
    *folders, last = name.split("/")
    return last.casefold() == METADATA and not any(folder.startswith((".", "__MACOSX")) for folder in folders)


def _read_table(archive: Archive, entry: zipfile.ZipInfo, found: dict[str, str]) -> None:
    """Add one table's rows to `found`."""
    if entry.file_size > _LARGEST_BYTES:
        raise InvalidDataset(f"metadata.csv may be at most {_LARGEST_BYTES} bytes long.")
    with refusing("metadata.csv must be a table in UTF-8, with commas and a line of column names."):
        text = archive.head(entry, entry.file_size).decode("utf-8-sig")
        table = csv.DictReader(io.StringIO(text, newline=""))
        columns, rows = table.fieldnames or (), list(table)
    if not {_FILE, _GROUP} <= set(columns):
        raise InvalidDataset("metadata.csv must have the columns file_name and group. Remove it if it is not needed.")
    folder = posixpath.dirname(entry.filename)
    for row in rows:
        name, group = row.get(_FILE), row.get(_GROUP)
        path = _normal(posixpath.join(folder, name or ""))
        if not name or not group or path in found:
            raise InvalidDataset("metadata.csv must name each image once in file_name, with its group in group.")
        found[path] = group


def _normal(name: str) -> str:
    """Composed form: macOS stores names in decomposed form."""
    return unicodedata.normalize("NFC", name)
