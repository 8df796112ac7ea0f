"""Releases of two jobs of one installation, and one of a forger: as lists of files, to be edited and packed again."""

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.release_archive import write_bundle
from example_proof import example_proof

KEY, FORGER = SigningKey(b"of this house"), SigningKey(b"of a forger")
IMAGES = "data/synthetic.npz"
Files = list[tuple[str, bytes]]
"""Content by name; a name may stand twice, as it may in an archive."""


def write_release(folder: Path, key: SigningKey, *, seed: int, job_id: str) -> Path:
    """The archive of a job, as an installation packs it."""
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(0, 256, (20, 28, 28, 1), dtype=np.uint8), np.arange(20, dtype=np.int64) % 10
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    proof = example_proof(job_id=job_id)
    WRITERS["npz"].write(folder / "images", WrittenImages(images, labels, schema, proof["card"]))
    further = {"privacy.json": json.dumps(key.sign(proof)).encode()}
    options = {"drawn": DrawnImages(20), "name": "t", "spdx": "other"}
    path = folder / f"{job_id}-{key.public.key_id}.zip"
    write_bundle(path, folder / "images", "npz", proof["card"], further=further, key=key, **options)
    return path


def unpacked(archive: Path) -> Files:
    with zipfile.ZipFile(archive) as source:
        return [(entry.filename, source.read(entry)) for entry in source.infolist()]


def packed(files: Iterable[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in files:
            target.writestr(name, content)
    return buffer.getvalue()
