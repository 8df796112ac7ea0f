"""Parquet in the layout of Hugging Face `datasets`: an Image column and a ClassLabel column.

The features are declared in the schema metadata, so `datasets` and the Hub's viewer read the file as images with
named labels, while every other Parquet reader sees PNG bytes and integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.png import choose_encoder
from datalens_service.data.export.writer import ArchivePlace, SoftLabels, Writer, WrittenImages, is_verbatim, provenance

if TYPE_CHECKING:
    import pyarrow as pa

# pyarrow is imported where a file is written: its libraries would take memory in every process that names the formats.
_ROWS_PER_GROUP: Final = 1000


def write(path: Path, released: WrittenImages) -> None:
    """Write columns `image` (struct of bytes and path), `label` (int64) and, if there are any, `label_probabilities`.

    The card is in the schema metadata.
    """
    import pyarrow.parquet as pq

    images, labels, schema, card, soft_labels, credentials = released
    columns = _columns(schema, card, soft=soft_labels is not None)
    # Every PNG repeats the same marking, which zstd packs away and a dictionary would not.
    with pq.ParquetWriter(path, columns, compression="zstd", use_dictionary=False) as writer:
        for group in _groups(images, labels, soft_labels, choose_encoder(is_verbatim(card), credentials), columns):
            writer.write_table(group)


WRITER: Final = Writer(
    name="parquet",
    title="Parquet (Hugging Face)",
    suffix="parquet",
    media_type="application/vnd.apache.parquet",
    write=write,
    archived_as=ArchivePlace("data/train-00000-of-00001.parquet", "application/x-parquet"),
)


def _columns(schema: Schema, card: dict[str, Any], *, soft: bool) -> pa.Schema:
    import pyarrow as pa

    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": list(schema.class_names), "_type": "ClassLabel"},
    }
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [("image", image), ("label", pa.int64())]
    if soft:
        features["label_probabilities"] = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
        fields.append(("label_probabilities", pa.list_(pa.float32())))
    metadata = {
        "huggingface": json.dumps({"info": {"features": features}}, ensure_ascii=False),
        "provenance": provenance(card),
    }
    return pa.schema(fields, metadata=metadata)


def _groups(
    images: Images,
    labels: Labels,
    soft_labels: SoftLabels | None,
    encode: Callable[[Images], bytes],
    columns: pa.Schema,
) -> Iterator[pa.Table]:
    import pyarrow as pa

    for start in range(0, len(images), _ROWS_PER_GROUP):
        block = images[start : start + _ROWS_PER_GROUP]
        rows = [{"bytes": encode(image), "path": f"{number:08d}.png"} for number, image in enumerate(block, start)]
        table: dict[str, Any] = {"image": rows, "label": labels[start : start + _ROWS_PER_GROUP]}
        if soft_labels is not None:
            table["label_probabilities"] = list(soft_labels[start : start + _ROWS_PER_GROUP])
        yield pa.table(table, schema=columns)
