"""NPZ in the keys of MedMNIST, which most papers' code reads."""

import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from datalens_service.data.export.writer import ArchivePlace, Writer, WrittenImages, fixed_entry, provenance


def write(path: Path, released: WrittenImages) -> None:
    """Write `train_images`, `train_labels`, `class_names`, `provenance` (JSON text), and `label_probabilities` if any.

    Grey images lose their channel axis, as in MedMNIST: (n, height, width).
    """
    images, labels, schema, card, soft_labels, _ = released
    arrays: dict[str, NDArray[Any]] = {
        "train_images": images.squeeze(-1) if schema.channels == 1 else images,
        "train_labels": labels,
        "class_names": np.array(schema.class_names, dtype=np.str_),
        "provenance": np.array(provenance(card), dtype=np.str_),
    }
    if soft_labels is not None:
        arrays["label_probabilities"] = soft_labels
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            entry = fixed_entry(f"{name}.npy", zipfile.ZIP_DEFLATED)
            with archive.open(entry, "w", force_zip64=True) as stream:
                npy.write_array(stream, np.asarray(values, order="C"), version=(1, 0), allow_pickle=False)


WRITER: Final = Writer(
    name="npz",
    title="NPZ (NumPy)",
    suffix="npz",
    media_type="application/octet-stream",
    write=write,
    archived_as=ArchivePlace("data/synthetic.npz", "application/x-npz"),
)
