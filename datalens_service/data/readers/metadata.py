"""`metadata.csv` or `metadata.jsonl` beside images: their labels, and which of them belong to one privacy unit.

The convention of image folders elsewhere: a column `file_name`, relative to the table itself, and here `label`
and `group` (or `patient`), of which there must be at least one. Other columns are ignored. Commas, semicolons or tabs
stand between columns, as the line of names has them.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from datalens_service.data.dataset import UnitIds
from datalens_service.data.privacy_units import identities
from datalens_service.data.untrusted.entries import Entry, refusing
from datalens_service.data.untrusted.source import Source
from datalens_service.errors import InvalidDataset

NAMES: Final = ("metadata.csv", "metadata.jsonl")

_LARGEST_BYTES = 2**26
_FILE, _LABEL, _GROUP, _PATIENT = "file_name", "label", "group", "patient"
_DELIMITERS = ",;\t"


class Metadata(NamedTuple):
    """What tables say of files, by their names in the archive.

    Attributes:
        labels: Label of each as text; None if no table has labels.
        groups: The same of the unit of each.
    """

    labels: dict[str, str] | None
    groups: dict[str, str] | None


def read_metadata(source: Source) -> Metadata | None:
    """All tables of an archive together; None if there is none.

    Raises:
        InvalidDataset: A table is too large, not UTF-8, or names a file twice or without what other files have.
    """
    rows_by_path: dict[str, dict[str, str]] = {}
    tables = [entry for entry in source.entries if is_metadata(entry.filename)]
    for entry in tables:
        _add_table(source, entry, rows_by_path)
    if not tables:
        return None
    return Metadata(_column(rows_by_path, _LABEL), _column(rows_by_path, _GROUP))


def is_metadata(name: str) -> bool:
    """Whether a file is a table of this kind."""
    *folders, last = name.split("/")
    return last.casefold() in NAMES and not any(folder.startswith((".", "__MACOSX")) for folder in folders)


def delimiter_of(text: str) -> str:
    """What stands between the columns of a table, by its line of names."""
    return max(_DELIMITERS, key=text.partition("\n")[0].count)


def units_of(names: Iterable[str], groups: Mapping[str, str]) -> UnitIds:
    """Identity of the unit of every file.

    Raises:
        InvalidDataset: A file has no group.
    """
    try:
        return identities([groups[normal(name)] for name in names])
    except KeyError:
        # Without the name of the file: it is private.
        raise InvalidDataset("metadata.csv must name every training image with its group.") from None


def normal(name: str) -> str:
    """Composed form: macOS stores names in decomposed form."""
    return unicodedata.normalize("NFC", name)


def _add_table(source: Source, entry: Entry, rows_by_path: dict[str, dict[str, str]]) -> None:
    """Add one table's rows to `rows_by_path`."""
    if entry.file_size > _LARGEST_BYTES:
        raise InvalidDataset(f"A table of metadata may be at most {_LARGEST_BYTES} bytes long.")
    with refusing("metadata.csv must be a table in UTF-8, with a line of column names; metadata.jsonl, JSON lines."):
        text = source.head(entry, entry.file_size).decode("utf-8-sig")
        rows = _json_rows(text) if entry.filename.casefold().endswith(".jsonl") else _csv_rows(text)
    folder = posixpath.dirname(entry.filename)
    for row in rows:
        path = normal(posixpath.join(folder, row.pop(_FILE) or ""))
        if path == folder or path in rows_by_path or not all(row.values()):
            raise InvalidDataset(
                "metadata.csv must name each image once in file_name, with its group in group or its label in label."
            )
        rows_by_path[path] = row


def _csv_rows(text: str) -> list[dict[str, str]]:
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter_of(text))
    columns = _columns_read(table.fieldnames or ())
    return [{name: row.get(column) or "" for name, column in columns.items()} for row in table]


def _json_rows(text: str) -> list[dict[str, str]]:
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    columns = _columns_read(rows[0] if rows else ())
    return [{name: _text(row.get(column)) for name, column in columns.items()} for row in rows]


def _text(value: object) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    return ""


def _columns_read(columns: Iterable[str]) -> dict[str, str]:
    """Which column is read for the file, the label and the group, as far as they are there."""
    present = set(columns)
    sources = {_FILE: _FILE, _LABEL: _LABEL, _GROUP: _GROUP if _GROUP in present else _PATIENT}
    names = {name: column for name, column in sources.items() if column in present}
    if _FILE not in names or len(names) == 1:
        raise InvalidDataset(
            "metadata.csv must have the columns file_name and group, or file_name and label. Remove it if it is not "
            "needed."
        )
    return names


def _column(rows_by_path: Mapping[str, Mapping[str, str]], name: str) -> dict[str, str] | None:
    values = {path: row[name] for path, row in rows_by_path.items() if name in row}
    return values or None
