"""Whatever form released images have, they become the same data set of PyTorch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from data.builders import random_images
from datalens_service.base.errors import InvalidInput
from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Schema
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.release_archive import write_bundle
from datalens_service.integrations.images import ReleasedImages, from_folder, from_job
from example_proof import EXAMPLE_PROOF

from .conftest import Released

NAMES = ("T-shirt/top", "Übergang", "../..")
CARD: dict[str, Any] = {
    **EXAMPLE_PROOF["card"],
    "images": {"channels": 3, "height": 6, "width": 5, "class_names": NAMES},
}
IMAGES = random_images(9, 6, 5, 3)
LABELS = np.arange(9, dtype=np.int64) // 3


def write_release(folder: Path, format: str) -> tuple[Path, Path]:
    """Images alone, and a packed release with them."""
    schema = Schema(channels=3, height=6, width=5, class_names=NAMES, num_units=100)
    alone = folder / f"images.{WRITERS[format].suffix}"
    WRITERS[format].write(alone, WrittenImages(IMAGES, LABELS, schema, CARD))
    packed = folder / "release.zip"
    further, key = {"privacy.json": json.dumps({}).encode()}, SigningKey(b"of this house")
    write_bundle(packed, alone, format, CARD, drawn=DrawnImages(9), name="nine", spdx="other", further=further, key=key)
    return alone, packed


@pytest.mark.parametrize("format", WRITERS)
def test_a_file_a_packed_and_an_unpacked_release_are_the_same_images(tmp_path: Path, format: str) -> None:
    alone, packed = write_release(tmp_path, format)
    unpacked = tmp_path / "unpacked"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", packed, unpacked], check=True)
    loaded = [from_folder(path) for path in (alone, packed, unpacked)]
    for one in loaded:
        np.testing.assert_array_equal(one.images, IMAGES)
        np.testing.assert_array_equal(one.labels, LABELS)
    assert [tuple(one.classes) for one in loaded[1:]] == [NAMES, NAMES]


def test_a_loader_of_pytorch_makes_batches_of_it() -> None:
    dataset = ReleasedImages(IMAGES, LABELS, NAMES)
    pixels, labels = next(iter(DataLoader(dataset, batch_size=4, num_workers=0)))  # type: ignore[arg-type]
    assert (pixels.shape, pixels.dtype) == ((4, 3, 6, 5), torch.float32)
    assert torch.equal(pixels[1] * 255, torch.from_numpy(IMAGES[1]).permute(2, 0, 1).float())
    assert labels.tolist() == LABELS[:4].tolist()


def test_a_transform_takes_the_place_of_the_tensor() -> None:
    dataset = ReleasedImages(IMAGES, LABELS, NAMES, transform=lambda image: int(image.sum()))
    assert dataset[5] == (int(IMAGES[5].sum()), 1)


def test_a_job_is_loaded_without_a_file_of_ones_own(released: Released) -> None:
    dataset = from_job(released.client, released.job.id, synthetic_images=12)
    assert (dataset.images.shape, dataset.classes) == ((12, 8, 8, 1), ["0", "1", "2", "3"])


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private.npz").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="is no release"):
        from_folder(tmp_path)


def test_pytorch_is_not_imported_before_the_first_image() -> None:
    script = "import sys, datalens_service.integrations.images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
