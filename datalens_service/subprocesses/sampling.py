"""Synthetic images as a file: drawn from a released generator, or taken from what a job has drawn already.

Both are post-processing: free, however often. Drawing may need torch, and many images take time, so the API
does it in a process of its own:

    python -m datalens_service.subprocesses.sampling GENERATOR CARD N CLASSES FORMAT SEED OUT PACKED CERTIFICATE KEY

CLASSES are the labels to draw in turn, separated by commas; all of them, as frequent as usual, if it is empty. PACKED
is empty to draw, and CERTIFICATE and KEY, of the operator, are empty to sign nothing.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export import WRITERS, Writer, WrittenImages
from datalens_service.data.export.content_credentials import ContentCredentials, CredentialFiles
from datalens_service.data.export.pixel_hashes import list_hashes
from datalens_service.data.export.writer import is_verbatim
from datalens_service.models.generators.generator import Generator
from datalens_service.subprocesses.child_program import end_with, say_what_is_missing

HASHES_SUFFIX: Final = ".hashes"
"""Ending of a file with the hashes of the synthetic images in the file whose name stands before it."""
PACKED_IMAGES: Final = "synthetic.npz"
"""File of a job with the images that it has drawn already."""


def write_synthetic(
    generator_path: Path,
    card: dict[str, Any],
    n: int,
    format: str,
    seed: int,
    out_path: Path,
    classes: Sequence[int] = (),
    credentials: ContentCredentials | None = None,
) -> Images:
    """Draw images, write them and return them; `classes` take turns, and all are as frequent as usual if none is named.

    Raises:
        WorkerUnavailable: The generator needs torch, and it is not installed.
        InvalidInput: n is below 1, or there is no such format.
    """
    writer = _find_writer(format)
    generator = Generator.load(generator_path)
    with say_what_is_missing("Drawing from this generator"):
        wanted = np.resize(np.array(classes, dtype=np.int64), n) if classes else None
        images, labels = generator.sample(n, labels=wanted, seed=seed)
    soft = generator.soft_labels(n, labels=wanted, seed=seed)
    writer.write(out_path, WrittenImages(images, labels, generator.schema, card, soft, credentials))
    return images


def write_prefix(
    packed_path: Path,
    schema: Schema,
    card: dict[str, Any],
    n: int,
    format: str,
    out_path: Path,
    credentials: ContentCredentials | None = None,
    classes: Sequence[int] = (),
) -> Images:
    """Write the first images of an NPZ that a job has packed, in its order or with `classes` in turn; return them."""
    writer = _find_writer(format)
    with np.load(packed_path, allow_pickle=False) as packed:
        images, labels, soft = packed["train_images"], packed["train_labels"], packed.get("label_probabilities")
    if not 1 <= n <= len(labels):
        raise InvalidInput(f"⟦download.synthetic_images⟧ must lie between 1 and {len(labels)}.")
    shape = (-1, schema.height, schema.width, schema.channels)
    labels = labels.astype(np.int64).reshape(-1)
    rows = _choose_rows(labels, np.resize(np.array(classes, dtype=np.int64), n)) if classes else np.arange(n)
    first: Images = images[rows].reshape(shape)
    soft = None if soft is None else soft[rows]
    writer.write(out_path, WrittenImages(first, labels[rows], schema, card, soft, credentials))
    return first


def _choose_rows(labels: Labels, wanted: Labels) -> NDArray[np.int64]:
    """Return the rows (n,) of the first images with these labels (n,), in their order."""
    rows = np.empty(len(wanted), dtype=np.int64)
    for label in np.unique(wanted):
        places, found = np.flatnonzero(wanted == label), np.flatnonzero(labels == label)
        if len(found) < len(places):
            raise InvalidInput("⟦download.per_class⟧ names more images of a class than were packed.")
        rows[places] = found[: len(places)]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw or take images as the command line says, and return the exit status of `child_program`."""
    return end_with(_write, arguments)


def _write(
    generator: str,
    card: str,
    n: str,
    classes: str,
    format: str,
    seed: str,
    out: str,
    packed: str = "",
    certificate: str = "",
    key: str = "",
) -> None:
    stated = json.loads(Path(card).read_text())
    credentials = ContentCredentials(CredentialFiles(Path(certificate), Path(key))) if certificate else None
    labels = [int(label) for label in classes.split(",") if label]
    if packed:
        schema = Generator.load(Path(generator)).schema
        written = write_prefix(Path(packed), schema, stated, int(n), format, Path(out), credentials, labels)
    else:
        written = write_synthetic(Path(generator), stated, int(n), format, int(seed), Path(out), labels, credentials)
    if not is_verbatim(stated):
        Path(out + HASHES_SUFFIX).write_text(list_hashes(written))


def _find_writer(format: str) -> Writer:
    if format not in WRITERS:
        raise InvalidInput(f"⟦download.format⟧ must be one of {', '.join(WRITERS)}.")
    return WRITERS[format]


if __name__ == "__main__":
    sys.exit(main())
