"""`metadata.csv` or `metadata.jsonl` beside images: their labels, and groups that form privacy units.

The convention of image folders elsewhere: a column of file names, relative to the table itself, and one of labels or
of groups, or both, under their usual names or those that the owner declares. Columns are separated by commas,
semicolons or tabs, whichever the line of names has. Tables are UTF-8, UTF-16 with a byte order mark, or what the owner
declares.
"""

import codecs
import csv
import io
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.identifying_names import is_date, looks_identifying
from datalens_service.data.intake.readers.columns import Columns, choose_columns, is_other_column, is_person_column
from datalens_service.data.intake.readers.image_entries import is_metadata
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import FileEntry, normal, plain_name
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.data.notices import NoticeCode, Notices

_LARGEST_BYTES: Final = 2**26
_DELIMITERS: Final = ",;\t"
_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


class MetadataRow(NamedTuple):
    """The row of a table about one file; `label` as text, None if the table has no labels."""

    place: str
    label: str | None
    group: str | None


@dataclass
class Metadata:
    """All tables of an upload together.

    Attributes:
        group_name: Word for one group; None if they name no groups.
        backslashed: Places with backslashes between folders.
        unused: Columns that are not read.
        persons: Those among them that look like keys of persons.
    """

    names: tuple[str, ...]
    has_labels: bool = False
    group_name: str | None = None
    rows: dict[str, MetadataRow] = field(default_factory=dict)
    backslashed: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    persons: list[str] = field(default_factory=list)

    def find_row(self, name: str) -> MetadataRow | None:
        return self.rows.get(name.casefold())


def read_metadata(source: Source, choices: ReadingChoices) -> Metadata | None:
    """Read all tables of an archive together; None if there is none.

    Raises:
        UnusableFiles: Names table and line.
        InvalidDataset: A table is too large, or lacks a column.
    """
    tables = [entry for entry in source.entries if is_metadata(entry.filename)]
    if not tables:
        return None
    metadata = Metadata(tuple(entry.filename for entry in tables))
    kinds = set[tuple[bool, str | None]]()
    for entry in tables:
        columns, records = _read_table(source, entry, choices)
        kinds.add((columns.label is not None, columns.group_name))
        _add_rows(metadata, entry.filename, columns, _labelled(columns, records, choices))
        metadata.persons += [name for name in columns.unused if _holds_persons(name, records)]
        metadata.unused += [name for name in columns.unused if name not in metadata.persons]
    if len({labelled for labelled, _ in kinds}) > 1:
        raise InvalidDataset("Either all tables name labels, or none: one metadata file has a column that others lack.")
    metadata.has_labels = any(labelled for labelled, _ in kinds)
    metadata.group_name = next((group for _, group in sorted(kinds, key=str) if group), None)
    return metadata


def note_metadata(metadata: Metadata | None, names: Iterable[str], notices: Notices) -> None:
    """Note the parts of the tables that are not read: rows whose file is missing, and columns."""
    if metadata is None:
        return
    present = {name.casefold() for name in names}
    missing = [f"{row.place}: {name}" for name, row in metadata.rows.items() if name not in present]
    notices.add(NoticeCode.MISSING_FILES, missing)
    notices.add(NoticeCode.BACKSLASHES, metadata.backslashed)
    notices.add(NoticeCode.PERSON_COLUMN, dict.fromkeys(metadata.persons))
    notices.add(NoticeCode.UNUSED_COLUMNS, dict.fromkeys(metadata.unused))


def _read_table(source: Source, entry: FileEntry, choices: ReadingChoices) -> tuple[Columns, list[tuple[int, Any]]]:
    if entry.file_size > _LARGEST_BYTES:
        raise InvalidDataset(f"A table of metadata may be at most {_LARGEST_BYTES:,} bytes long.")
    text = _decoded(source.head(entry, entry.file_size), entry.filename, choices)
    is_json = entry.filename.casefold().endswith(".jsonl")
    records = _json_records(text, entry.filename) if is_json else _csv_records(text, entry.filename)
    present = list(dict.fromkeys(name for _, record in records for name in record))
    if not records:
        raise _refused(entry.filename, "The table has no row. Name each image in a line of its own.")
    return choose_columns(entry.filename, present, choices), records


def _decoded(content: bytes, name: str, choices: ReadingChoices) -> str:
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), None)
    encoding = marked or choices.encoding or "utf-8"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise _refused(
            name, f"The table is not text in {encoding.upper()}. Save it as UTF-8, or declare its ⟦encoding⟧."
        ) from None


def _csv_records(text: str, name: str) -> list[tuple[int, dict[str, str]]]:
    """Return lines and their rows; blank lines do not count."""
    header = text.lstrip("\r\n").partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=header.count), strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        found += ((reader.line_num, row) for row in reader if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise _refused(f"{name} line {reader.line_num}", f"The line is no row of a table: {error}.") from None
    if not found:
        raise _refused(name, "The table is empty.")
    names = [cell.strip() for cell in found[0][1]]
    if len(set(names)) != len(names):
        raise _refused(f"{name} line {found[0][0]}", "Two columns have the same name. Rename one.")
    wrong = [(line, row) for line, row in found[1:] if len(row) != len(names)]
    if wrong:
        reason = f"The line has {len(wrong[0][1])} values, and there are {len(names)} columns."
        raise _refused(f"{name} line {wrong[0][0]}", reason)
    return [(line, dict(zip(names, row, strict=True))) for line, row in found[1:]]


def _json_records(text: str, name: str) -> list[tuple[int, dict[str, Any]]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    records = []
    for number, line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            reason = "The line is no JSON object. Write one object a line, with file_name and label; no array around."
            raise _refused(f"{name} line {number}", reason)
        records.append((number, record))
    return records


def _labelled(columns: Columns, records: list[tuple[int, Any]], choices: ReadingChoices) -> list[tuple[int, Any]]:
    """Keep rows with a label, where those without one are left out: their images then have no row."""
    if not choices.skip_unreadable or columns.label is None:
        return records
    return [(line, record) for line, record in records if _text(record.get(columns.label))]


def _add_rows(metadata: Metadata, table: str, columns: Columns, records: Sequence[tuple[int, Any]]) -> None:
    folder = posixpath.dirname(table)
    bad = list[BadFile]()
    for line, record in records:
        place = f"{table} line {line}"
        try:
            path, row = _row(place, folder, columns, record)
        except InvalidDataset as error:
            bad.append(BadFile(name=place, reason=error.text))
            continue
        if (other := metadata.rows.get(path)) is not None:
            bad.append(BadFile(name=f"{place}, as {other.place}", reason="An image is named twice. Remove one line."))
        metadata.rows[path] = row
        metadata.backslashed += [place] if "\\" in str(record.get(columns.file)) else []
    if bad:
        raise UnusableFiles(bad, len(records))


def _row(place: str, folder: str, columns: Columns, record: Mapping[str, Any]) -> tuple[str, MetadataRow]:
    name = _text(record.get(columns.file))
    if not name:
        raise InvalidDataset(f"The column {columns.file} is empty. Name the image, or remove the line.")
    label = _cell(record, columns.label)
    group = _cell(record, columns.group)
    # Once a cell of a column of numbers is empty, pandas writes 1.0 for 1.
    group = group if group is None else re.sub(r"^(\d+)\.0+$", r"\1", group)
    path = normal(posixpath.normpath(posixpath.join(folder, plain_name(name))))
    return path.casefold(), MetadataRow(place, label, group)


def _cell(record: Mapping[str, Any], column: str | None) -> str | None:
    if column is None:
        return None
    text = _text(record.get(column))
    if not text:
        raise InvalidDataset(f"The column {column} is empty. Fill it in, or remove the line and its image.")
    return text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() if isinstance(value, str | int) else ""


def _holds_persons(name: str, records: Sequence[tuple[int, Any]]) -> bool:
    """Tell whether a column that is not read is named like keys of persons, or repeats values that look like them."""
    if is_other_column(name):
        return False
    values = [text for _, record in records if (text := _text(record.get(name)))]
    different = {value for value in values if not is_date(value)}
    repeats = 1 < len(different) < len(values)
    return is_person_column(name) or (repeats and sum(map(looks_identifying, different)) > len(different) / 2)


def _refused(place: str, reason: str) -> UnusableFiles:
    return UnusableFiles([BadFile(name=place, reason=reason)], 1)
