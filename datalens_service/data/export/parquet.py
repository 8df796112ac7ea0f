"""Parquet in the layout of Hugging Face `datasets`: an Image column and a ClassLabel column.

The features are declared in the schema metadata, so `datasets` and the Hub's viewer read the file as images with
named labels, while every other Parquet reader sees PNG bytes and integers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.png import encode_png
from datalens_service.data.export.provenance import provenance
from datalens_service.data.export.writer import ArchivePlace, Writer

_ROWS_PER_GROUP: Final = 1000


def write(path: Path, images: Images, labels: Labels, schema: Schema, card: dict[str, Any]) -> None:
    """Write columns `image` (struct of bytes and path) and `label` (int64); the card is in the schema metadata."""
    columns = _columns(schema, card)
    # Every PNG repeats the same marking, which zstd packs away and a dictionary would not.
    with pq.ParquetWriter(path, columns, compression="zstd", use_dictionary=False) as writer:
        for group in _groups(images, labels, columns):
            writer.write_table(group)


WRITER: Final = Writer(
    name="parquet",
    title="Parquet (Hugging Face)",
    suffix="parquet",
    media_type="application/vnd.apache.parquet",
    write=write,
    archived_as=ArchivePlace("data/train-00000-of-00001.parquet", "application/x-parquet"),
)


def _columns(schema: Schema, card: dict[str, Any]) -> pa.Schema:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(schema.class_names), "_type": "ClassLabel"},
    }
    metadata = {
        "huggingface": json.dumps({"info": {"features": features}}, ensure_ascii=False),
        "provenance": provenance(card),
    }
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.schema([("image", image), ("label", pa.int64())], metadata=metadata)


def _groups(images: Images, labels: Labels, columns: pa.Schema) -> Iterator[pa.Table]:
    for start in range(0, len(images), _ROWS_PER_GROUP):
        block = images[start : start + _ROWS_PER_GROUP]
        rows = [{"bytes": encode_png(image), "path": f"{number:08d}.png"} for number, image in enumerate(block, start)]
        yield pa.table({"image": rows, "label": labels[start : start + _ROWS_PER_GROUP]}, schema=columns)
