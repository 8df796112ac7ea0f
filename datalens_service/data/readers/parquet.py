"""Parquet with a column of encoded images and a column of labels, as Hugging Face `datasets` writes it.

One file, or a zip or tar of files: those with the word `test` in their names are the test split; those with `val`,
`valid` or `validation` are left out and noted. The features in the schema's metadata say which columns are meant
(Image, ClassLabel, and its names); without them the columns are `image` (or `img`) and `label` (or `labels`). Images
are bytes, or a struct with `bytes`; labels are integers or words. A column `group` says which training images belong
to one privacy unit.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from datalens_service.data.dataset import Images, Split
from datalens_service.data.notices import NoticeCode
from datalens_service.data.privacy_units import UnitDeclaration, identities
from datalens_service.data.readers.base import ClassNames, Reader, Upload, build_upload
from datalens_service.data.readers.labels import numbered
from datalens_service.data.untrusted.entries import Entry, refusing
from datalens_service.data.untrusted.images import decode_all
from datalens_service.data.untrusted.source import Source, allowance
from datalens_service.errors import InvalidDataset

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_SUFFIX: Final = ".parquet"
_FOOTER_BYTES: Final = 16 * 2**20
_ROWS_AT_ONCE: Final = 4
"""Few, since each may be a large image; a hundred thousand small ones take hardly longer so."""

_ROW_GROUPS: Final = 100_000
_MOST_ROWS: Final = 10_000_000
_DAMAGED: Final = "The Parquet file is damaged, cut off or of an unusual kind. Write it again with datasets or pyarrow."
_IMAGE_COLUMNS: Final = ("image", "img")
_LABEL_COLUMNS: Final = ("label", "labels")
_GROUP: Final = "group"
_WORD: Final = re.compile("[a-z]+")
_UNUSED: Final = frozenset({"val", "valid", "validation"})


class _Columns(NamedTuple):
    """Which columns are read.

    Attributes:
        image: With encoded images.
        label: With labels.
        group: With units, or None.
        class_names: Of a ClassLabel, or None.
    """

    image: str
    label: str
    group: str | None
    class_names: ClassNames | None


class _Table(NamedTuple):
    """One split as it is stored."""

    images: list[bytes]
    labels: list[str]
    groups: list[str] | None


def recognises(source: Source) -> bool:
    """Whether the file is Parquet, or an archive of Parquet files."""
    if source.archive is None:
        return source.start(len(_MAGIC)) == _MAGIC
    files = _entries(source)
    return bool(files) and source.head(files[0], len(_MAGIC)) == _MAGIC


def read(source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
    """Read Parquet.

    Args:
        source: The table_file file.
        class_names: Public names; by default those of the ClassLabel, the words in sorted order, or "0", "1", ….
        units: What one unit is, if there is a column of groups.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    with ExitStack() as stack:
        files = stack.enter_context(_files(source))
        names, train, test = _tables(source, files)
    labels, names = numbered([*train.labels, *test.labels], class_names or names, source.notices)
    count = len(train.labels)
    images = _decoded(train, None, source)
    identity = None if train.groups is None else identities(train.groups)
    split = Split(images, labels[:count], identity)
    test_split = Split(_decoded(test, images, source), labels[count:]) if test.labels else None
    return build_upload(split, test_split, names, units)


READER = Reader(
    name="parquet",
    title="Parquet with an image column",
    layout="one file or a zip of files; columns Image and ClassLabel of Hugging Face `datasets`, or columns `image` "
    "and `label`",
    suffixes=(".parquet", ".zip"),
    recognises=recognises,
    read=read,
)


def _entries(source: Source) -> list[Entry]:
    return [entry for entry in source.entries if entry.filename.casefold().endswith(_SUFFIX)]


@contextmanager
def _files(source: Source) -> Iterator[list[tuple[bool, IO[bytes]]]]:
    """(is test, open file) in the order of their names."""
    with ExitStack() as stack:
        if source.archive is None:
            yield [(False, stack.enter_context(source.path.open("rb")))]
            return
        files: list[tuple[bool, IO[bytes]]] = []
        for entry in sorted(_entries(source), key=lambda entry: entry.filename):
            words = set(_WORD.findall(entry.filename.rpartition("/")[2].casefold()))
            if words & _UNUSED:
                source.notices.add(NoticeCode.IGNORED_SPLIT, [entry.filename])
            else:
                file = stack.enter_context(tempfile.TemporaryFile(prefix="datalens-"))
                with refusing(_DAMAGED), source.archive.open(entry) as packed:
                    shutil.copyfileobj(packed, file)
                files.append(("test" in words, file))
        yield files


def _tables(source: Source, files: list[tuple[bool, IO[bytes]]]) -> tuple[ClassNames | None, _Table, _Table]:
    """Names of the classes, training and test split; an empty one has no labels."""
    tables: dict[bool, list[_Table]] = {False: [], True: []}
    names: ClassNames | None = None
    for is_test, file in files:
        with refusing(_DAMAGED):
            table_file = _open(file)
            columns = _columns(table_file)
            tables[is_test].append(_rows(table_file, columns, source))
        names = names or columns.class_names
    if not any(table.labels for table in tables[False]):
        raise InvalidDataset("There are no training rows. Files with test in their names are the test split.")
    return names, _joined(tables[False]), _joined(tables[True])


def _open(file: IO[bytes]) -> pq.ParquetFile:
    """A file whose metadata was measured before it is parsed."""
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


def _columns(table_file: pq.ParquetFile) -> _Columns:
    schema = table_file.schema_arrow
    features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    kinds = {name: value.get("_type") for name, value in features.items() if isinstance(value, dict)}
    image = _one(schema.names, [name for name in kinds if kinds[name] == "Image"], _IMAGE_COLUMNS)
    label = _one(schema.names, [name for name in kinds if kinds[name] == "ClassLabel"], _LABEL_COLUMNS)
    names = features.get(label, {}).get("names") if kinds.get(label) == "ClassLabel" else None
    group = _GROUP if _GROUP in schema.names else None
    return _Columns(image, label, group, tuple(str(name) for name in names) if names else None)


def _one(names: list[str], declared: list[str], usual: tuple[str, ...]) -> str:
    candidates = [name for name in names if name in declared] or [name for name in names if name in usual]
    if len(candidates) != 1:
        raise InvalidDataset(
            "The table must have one column of images and one of labels: Image and ClassLabel of datasets, or columns "
            "named image and label."
        )
    return candidates[0]


def _rows(table_file: pq.ParquetFile, columns: _Columns, source: Source) -> _Table:
    """All rows; what they unpack to is counted while they come, whatever the file declares."""
    columns_read = [name for name in (columns.image, columns.label, columns.group) if name is not None]
    most = allowance(source.path.stat().st_size, source.limits)
    # Whatever is declared honestly is refused before a page is unpacked, which pyarrow does as a whole.
    _check_unpacked(_declared(table_file), most, source)
    images: list[bytes] = []
    labels: list[str] = []
    groups: list[str] = []
    unpacked = 0
    for batch in table_file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns_read, use_threads=False):
        for value in batch.column(columns.image):
            images.append(_bytes(value.as_py()))
            unpacked += len(images[-1])
            _check_unpacked(unpacked, most, source)
        labels += [_word(value, "label") for value in batch.column(columns.label).to_pylist()]
        if columns.group is not None:
            groups += [_word(value, "group") for value in batch.column(columns.group).to_pylist()]
    return _Table(images, labels, groups if columns.group is not None else None)


def _declared(table_file: pq.ParquetFile) -> int:
    """Bytes that all row groups claim to unpack to."""
    metadata = table_file.metadata
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def _check_unpacked(size: int, most: int, source: Source) -> None:
    if size > most:
        raise InvalidDataset(f"The table unpacks to more than {source.limits.ratio} times its size.")


def _bytes(value: Any) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise InvalidDataset("At least one row has no image bytes; paths to other files are not followed.")
    return content


def _word(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidDataset(f"At least one row has no {what}, or one that is neither an integer nor a word.")
    return str(value)


def _joined(tables: list[_Table]) -> _Table:
    grouped = [table.groups for table in tables if table.groups is not None]
    if grouped and len(grouped) != len(tables):
        raise InvalidDataset("Either all files have a column group, or none.")
    return _Table(
        [image for table in tables for image in table.images],
        [label for table in tables for label in table.labels],
        [group for groups in grouped for group in groups] if grouped else None,
    )


def _decoded(table: _Table, like: Images | None, source: Source) -> Images:
    first = None if like is None else like[0]
    contents = ((f"row {number}", partial(_whole, image, source)) for number, image in enumerate(table.images))
    return decode_all(contents, len(table.images), first, source.limits, source.notices, source.decoder)


def _whole(image: bytes, source: Source) -> bytes:
    if len(image) > source.limits.image_file_bytes:
        raise InvalidDataset("At least one image is too large for what it holds. Save the images again as PNG.")
    return image
