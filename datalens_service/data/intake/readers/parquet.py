"""Parquet with a column of encoded images and a column of labels, as Hugging Face `datasets` writes it.

One file, or a zip or tar of files: those with the word `test` in their names, or else in the name of a folder around
them, are the test split; those with "val", "valid" or "validation" are left out and noted. The features in the schema's
metadata tell which columns are meant (Image, ClassLabel, and its names); without them they have the usual names, or
those that the owner declares. Images are bytes, or a struct with `bytes`; labels are integers, words, true and false,
or whole floats. A column "group" (or "patient", "subject", "account", …) tells which images belong to one privacy unit;
names of files, in that struct or in a column, are searched for persons and not kept.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import Images
from datalens_service.data.intake.readers.base import (
    ClassNames,
    Groups,
    LabelColumn,
    LabelKind,
    Reader,
    ReadImages,
    RecordIndex,
    UploadIndex,
)
from datalens_service.data.intake.readers.columns import (
    FILE,
    GROUP,
    LABEL,
    find_column,
    group_word,
    is_person_column,
    refused_columns,
)
from datalens_service.data.intake.readers.image_entries import TEST, TRAIN, UNUSED, is_ignored, split_named
from datalens_service.data.intake.readers.labels import check_one_kind, column_of_values
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import FileEntry, refusing
from datalens_service.data.intake.untrusted.file_kinds import DICOM, HEAD_BYTES, is_dicom
from datalens_service.data.intake.untrusted.images import DecodedImages, decode_all
from datalens_service.data.intake.untrusted.source import Source, allowance
from datalens_service.data.notices import NoticeCode

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_SUFFIX: Final = ".parquet"
_FOOTER_BYTES: Final = 16 * 2**20
_ROWS_AT_ONCE: Final = 4
"""Few rows, since each may be a large image; a hundred thousand small ones take hardly longer so."""

_ROW_GROUPS: Final = 100_000
_MOST_ROWS: Final = 10_000_000
_DAMAGED: Final = "The Parquet file is damaged, cut off or of an unusual kind. Write it again with datasets or pyarrow."
_IMAGE_COLUMNS: Final = ("image", "img", "images", "picture", "pixels")
_WORD: Final = re.compile("[a-z]+")


class _Columns(NamedTuple):
    image: str
    label: str
    group: str | None
    file: str | None
    class_names: ClassNames | None


class _Cell(NamedTuple):
    """A cell of the column of images, with the name of its row in a refusal."""

    row: str
    value: object


class _Table(NamedTuple):
    """One file as it is stored; `groups` of each record, None if the file has no column of them."""

    name: str
    images: list[_Cell]
    labels: LabelColumn
    groups: list[str | None] | None
    file_names: list[str]
    columns: _Columns


def recognises(source: Source, choices: ReadingChoices) -> bool:
    """Tell whether the file is Parquet, or an archive of Parquet files."""
    if source.archive is None:
        return source.start(len(_MAGIC)) == _MAGIC
    files = _entries(source)
    return bool(files) and source.head(files[0], len(_MAGIC)) == _MAGIC


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index labels and groups of the rows."""
    with _files(source) as files:
        tables = [(is_test, _read_table(name, file, source, choices)) for is_test, name, file in files]
    train = [table for is_test, table in tables if not is_test]
    test = [table for is_test, table in tables if is_test]
    if not any(table.images for table in train):
        raise InvalidDataset("There are no training rows. Files with test in their names are the test split.")
    return UploadIndex(
        _index(train, source, choices, is_test=False),
        _index(test, source, choices, is_test=True) if any(table.images for table in test) else None,
    )


READER = Reader(
    name="parquet",
    title="Parquet with an image column",
    layout="one file or a zip of files; columns Image and ClassLabel of Hugging Face `datasets`, or columns `image` "
    "and `label`",
    suffixes=(".parquet", ".zip"),
    recognises=recognises,
    index=index,
    has_label_column=True,
)


def _entries(source: Source) -> list[FileEntry]:
    return [e for e in source.entries if e.filename.casefold().endswith(_SUFFIX) and not is_ignored(e.filename)]


@contextmanager
def _files(source: Source) -> Iterator[list[tuple[bool, str, IO[bytes]]]]:
    """Open the files, and yield (is test, name, open file) in the order of their names."""
    with ExitStack() as stack:
        if source.archive is None:
            yield [(False, "The table", stack.enter_context(source.path.open("rb")))]
            return
        files: list[tuple[bool, str, IO[bytes]]] = []
        for entry in sorted(_entries(source), key=lambda entry: entry.filename):
            split = _name_split(entry.filename)
            if split == UNUSED:
                source.notices.add(NoticeCode.IGNORED_SPLIT, [entry.filename])
            else:
                file = stack.enter_context(tempfile.TemporaryFile(prefix="datalens-"))
                with refusing(_DAMAGED), source.archive.open(entry) as packed:
                    shutil.copyfileobj(packed, file)
                files.append((split == TEST, entry.filename, file))
        yield files


def _name_split(name: str) -> str | None:
    """Return the split of a file, by the words in its own name, else by the folders around it."""
    for component in reversed(name.split("/")):
        splits = {split_named(word) for word in _WORD.findall(component.casefold())} - {None}
        if splits:
            return UNUSED if UNUSED in splits else TEST if TEST in splits else TRAIN
    return None


def _read_table(name: str, file: IO[bytes], source: Source, choices: ReadingChoices) -> _Table:
    with refusing(_DAMAGED):
        table_file = _open(file)
        columns = _columns(name, table_file, choices)
        _note_unused(table_file.schema_arrow.names, columns, source)
        return _rows(name, table_file, columns, source, choices)


def _index(tables: list[_Table], source: Source, choices: ReadingChoices, *, is_test: bool) -> RecordIndex:
    """Join the records of all files of a split."""
    strict = not (is_test or choices.ignore_groups)
    columns = {table.name: table.labels for table in tables if any(table.labels.words)}
    check_one_kind(columns)
    kind = next((column.kind for column in columns.values()), LabelKind.TEXT)
    names = next((table.columns.class_names for table in tables if table.columns.class_names), None)
    words = tuple(word for table in tables for word in table.labels.words)
    if strict and 0 < sum(table.groups is None for table in tables) < len(tables):
        raise InvalidDataset("Either all files have a column of groups, or none.")
    group = next((table.columns.group for table in tables if table.columns.group), None)
    groups = [name for table in tables for name in table.groups or [None] * len(table.images)]
    images = [image for table in tables for image in table.images]
    if group is not None and strict and None in groups:
        raise InvalidDataset("At least one row has no group, or one that is neither an integer nor a word.")
    if group is None and strict and source.decoder.reads(DICOM):
        _refuse_dicom(images)
    return RecordIndex(
        "the test split" if is_test else "the training split",
        LabelColumn(kind, words, names),
        _reading(images, source, choices),
        partial(Groups.from_names, groups, "group" if group is None else group_word(group)),
        tuple(name for table in tables for name in table.file_names),
    )


def _refuse_dicom(images: list[_Cell]) -> None:
    """Refuse DICOM files in a table: their patients would have to be in a column."""
    if any(is_dicom((_content(image.value) or b"")[:HEAD_BYTES]) for image in images):
        raise InvalidDataset(
            "The table holds DICOM files, and no column says which patient each is of. Add a column patient, or set "
            "⟦ignore_groups⟧ to protect single images."
        )


def _reading(images: list[_Cell], source: Source, choices: ReadingChoices) -> ReadImages:
    def read(first: Images | None) -> DecodedImages:
        contents = ((image.row, partial(_bytes, image.value, source)) for image in images)
        limits, notices, decoder = source.limits, source.notices, source.decoder
        return decode_all(contents, len(images), first, limits, notices, decoder, skip=choices.skip_unreadable)

    return read


def _open(file: IO[bytes]) -> pq.ParquetFile:
    """Open a file after measuring its metadata, which is parsed then."""
    import pyarrow.parquet as pq

    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    footer = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or not 0 < footer <= min(_FOOTER_BYTES, size - 12):
        raise InvalidDataset(_DAMAGED)
    file.seek(0)
    table_file = pq.ParquetFile(
        file, pre_buffer=False, thrift_string_size_limit=_FOOTER_BYTES, thrift_container_size_limit=10**6
    )
    if table_file.metadata.num_row_groups > _ROW_GROUPS or not 0 <= table_file.metadata.num_rows <= _MOST_ROWS:
        raise InvalidDataset(f"The Parquet file has too many rows or row groups; {_MOST_ROWS} rows are accepted.")
    return table_file


def _columns(name: str, table_file: pq.ParquetFile, choices: ReadingChoices) -> _Columns:
    schema = table_file.schema_arrow
    features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    kinds = {one: value.get("_type") for one, value in features.items() if isinstance(value, dict)}
    image = _declared_as(schema.names, kinds, "Image") or find_column(
        name, schema.names, _IMAGE_COLUMNS, None, "images", ""
    )
    label = (None if choices.label_column else _declared_as(schema.names, kinds, "ClassLabel")) or find_column(
        name, schema.names, LABEL, choices.label_column, "labels", "⟦label_column⟧"
    )
    if image is None or label is None:
        raise refused_columns(
            name,
            schema.names,
            "The table must have one column of images and one of labels: Image and ClassLabel of datasets, columns "
            "named image and label, or labels in ⟦label_column⟧.",
        )
    _check_type(name, image, schema.field(image).type)
    names = features.get(label, {}).get("names") if kinds.get(label) == "ClassLabel" else None
    group = find_column(name, schema.names, GROUP, choices.group_column, "groups", "⟦group_column⟧")
    texts = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    file = next((one for one in texts if one.strip().casefold() in FILE and one not in (image, label, group)), None)
    return _Columns(image, label, group, file, tuple(str(one) for one in names) if names else None)


def _note_unused(present: list[str], columns: _Columns, source: Source) -> None:
    unused = [name for name in present if name not in (columns.image, columns.label, columns.group)]
    source.notices.add(NoticeCode.PERSON_COLUMN, (name for name in unused if is_person_column(name)))
    source.notices.add(NoticeCode.UNUSED_COLUMNS, (name for name in unused if not is_person_column(name)))


def _declared_as(present: list[str], kinds: Mapping[str, object], kind: str) -> str | None:
    """Return the only column that the features declare so."""
    found = [name for name in present if kinds.get(name) == kind]
    return found[0] if len(found) == 1 else None


def _rows(name: str, table_file: pq.ParquetFile, columns: _Columns, source: Source, choices: ReadingChoices) -> _Table:
    """Read all rows; unpacked bytes are counted while they come, whatever the file declares."""
    read = (columns.image, columns.label, columns.group, columns.file)
    columns_read = [name for name in read if name is not None]
    most = allowance(source.path.stat().st_size, source.limits)
    # An honest declaration is refused before a page is unpacked, which pyarrow does as a whole.
    _check_unpacked(_declared(table_file), most, source)
    images: list[_Cell] = []
    labels: list[object] = []
    groups: list[str | None] = []
    file_names: list[str] = []
    prefix = "" if source.archive is None else f"{name} "
    unpacked = 0
    for batch in table_file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns_read, use_threads=False):
        for value in batch.column(columns.image):
            images.append(_Cell(f"{prefix}row {len(images)}", value.as_py()))
            file_names.append(_path(images[-1].value))
            unpacked += len(_content(images[-1].value) or b"") + len(file_names[-1])
            _check_unpacked(unpacked, most, source)
        labels += batch.column(columns.label).to_pylist()
        if columns.group is not None:
            groups += [_group(value) for value in batch.column(columns.group).to_pylist()]
        if columns.file is not None:
            named = [value or "" for value in batch.column(columns.file).to_pylist()]
            file_names[len(file_names) - len(named) :] = named
            unpacked += sum(map(len, named))
            _check_unpacked(unpacked, most, source)
    if choices.skip_unreadable and any(label is not None for label in labels):
        kept = [row for row, label in enumerate(labels) if label is not None]
        left_out = (image.row for image, label in zip(images, labels, strict=True) if label is None)
        source.notices.add(NoticeCode.UNREADABLE_LEFT_OUT, left_out)
        images, labels = [images[row] for row in kept], [labels[row] for row in kept]
        file_names = [file_names[row] for row in kept]
        groups = [groups[row] for row in kept] if groups else []
    grouped = groups if columns.group is not None else None
    return _Table(name, images, column_of_values(labels), grouped, file_names, columns)


def _declared(table_file: pq.ParquetFile) -> int:
    """Return the unpacked bytes that all row groups declare."""
    metadata = table_file.metadata
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def _check_unpacked(size: int, most: int, source: Source) -> None:
    if size > most:
        raise InvalidDataset(f"The table unpacks to more than {source.limits.ratio} times its size.")


def _content(value: object) -> bytes | None:
    content = value.get("bytes") if isinstance(value, dict) else value
    return content if isinstance(content, bytes) else None


def _bytes(value: object, source: Source) -> bytes:
    """Return the image in a cell.

    Raises:
        InvalidDataset: There is none, or it is too large.
    """
    content = _content(value)
    if content is None and (value is None or (isinstance(value, dict) and not any(value.values()))):
        raise InvalidDataset("The row has no image: its cell is empty (null). Leave the row out.")
    if content is None:
        raise InvalidDataset("The row has no image bytes; paths to other files are not followed.")
    if len(content) > source.limits.image_file_bytes:
        raise InvalidDataset("At least one image is too large for what it holds. Save the images again as PNG.")
    return content


def _check_type(name: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column whose cells cannot be encoded images."""
    import pyarrow.types as of

    lists = (of.is_list, of.is_large_list, of.is_fixed_size_list, of.is_list_view, of.is_large_list_view)
    if any(is_kind(kind) for is_kind in lists):
        inner = kind.value_type
        what = "numbers" if of.is_primitive(inner) or any(is_kind(inner) for is_kind in lists) else "images"
        advice = {
            "images": "Write one image into each row, with its label.",
            "numbers": "Save pixels and labels as arrays: numpy.savez_compressed.",
        }
        raise refused_columns(name, [column], f"Each cell of the column of images is a list of {what}. {advice[what]}")
    if of.is_string(kind) or of.is_large_string(kind):
        raise refused_columns(name, [column], "The column of images holds no image bytes but text; paths to other "
                              "files are not followed. Write each image as bytes, encoded as PNG or JPEG.")  # fmt: skip
    encoded = of.is_binary(kind) or of.is_large_binary(kind) or of.is_binary_view(kind) or of.is_fixed_size_binary(kind)
    if not (encoded or of.is_struct(kind) or of.is_null(kind) or of.is_dictionary(kind)):
        raise refused_columns(name, [column], "The column of images holds no image bytes but other values. Write each "
                              "as bytes, encoded as PNG or JPEG.")  # fmt: skip


def _path(value: object) -> str:
    """Return the name of the file that an image came from; "" if it is not stated."""
    path = value.get("path") if isinstance(value, dict) else None
    return path if isinstance(path, str) else ""


def _group(value: object) -> str | None:
    """Return the group of a row; None for what is neither an integer nor a word."""
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return None
    return str(value)
