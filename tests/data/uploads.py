"""The same twelve records in every format: what readers must agree on."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from .builders import Contents, encoded, random_images, write_npz, write_zip

IMAGES = random_images(12, 8, 8)
LABELS = np.arange(12, dtype=np.int64) % 3
PNGS = [encoded(Image.fromarray(image)) for image in IMAGES]


def write_tar(path: Path, contents: Contents, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_tar_gz(path: Path, contents: Contents) -> Path:
    return write_tar(path, contents, "w:gz")


def folder() -> dict[str, bytes]:
    return {f"{label}/{number:02d}.png": PNGS[number] for number, label in enumerate(LABELS)}


def csv_table() -> bytes:
    rows = [f"img/{number:02d}.png,{label}" for number, label in enumerate(LABELS)]
    return "\n".join(["file_name,label", *rows]).encode()


def jsonl_table() -> bytes:
    rows = [{"file_name": f"img/{number:02d}.png", "label": int(label)} for number, label in enumerate(LABELS)]
    return "\n".join(json.dumps(row) for row in rows).encode()


def beside(table: str, content: bytes) -> dict[str, bytes]:
    return {table: content, **{f"img/{number:02d}.png": image for number, image in enumerate(PNGS)}}


def shard(label: Callable[[int], tuple[str, bytes]] = lambda value: ("cls", str(value).encode())) -> dict[str, bytes]:
    found = {}
    for number, image in enumerate(PNGS):
        ending, content = label(int(LABELS[number]))
        found |= {f"{number:04d}.png": image, f"{number:04d}.{ending}": content}
    return found


def json_label(value: int) -> tuple[str, bytes]:
    return "json", json.dumps({"label": value}).encode()


def idx(values: np.ndarray[Any, Any]) -> bytes:
    header = b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def idx_files(packed: bool = True) -> dict[str, bytes]:
    pack = gzip.compress if packed else bytes
    ending = ".gz" if packed else ""
    return {
        f"train-images-idx3-ubyte{ending}": pack(idx(IMAGES)),
        f"train-labels-idx1-ubyte{ending}": pack(idx(LABELS)),
    }


def table(features: Mapping[str, Any] | None, **columns: Any) -> bytes:
    metadata = {"huggingface": json.dumps({"info": {"features": features}})} if features else None
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


def hugging_face_table() -> bytes:
    features = {"picture": {"_type": "Image"}, "kind": {"_type": "ClassLabel", "names": ["0", "1", "2"]}}
    rows = [{"bytes": image, "path": None} for image in PNGS]
    return table(features, picture=rows, kind=LABELS)


def write_bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


UPLOADS: dict[str, Callable[[Path], Path]] = {
    "npz": lambda path: write_npz(path, images=IMAGES, labels=LABELS),
    "image_folder": lambda path: write_zip(path, folder()),
    "image_folder in a tar": lambda path: write_tar(path, folder()),
    "image_folder in a tar.gz": lambda path: write_tar_gz(path, folder()),
    "image_table": lambda path: write_zip(path, beside("metadata.csv", csv_table())),
    "image_table as JSON lines": lambda path: write_tar(path, beside("metadata.jsonl", jsonl_table())),
    "parquet": lambda path: write_bytes(path, hugging_face_table()),
    "parquet without features": lambda path: write_bytes(path, table(None, image=PNGS, label=LABELS)),
    "parquet in a zip": lambda path: write_zip(path, {"data/train-0.parquet": hugging_face_table()}),
    "webdataset": lambda path: write_tar(path, shard()),
    "webdataset with JSON": lambda path: write_tar_gz(path, shard(json_label)),
    "idx": lambda path: write_zip(path, idx_files()),
    "idx in a tar": lambda path: write_tar(path, idx_files(packed=False)),
}
