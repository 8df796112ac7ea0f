"""Released images as a data set of PyTorch, from any file or folder that the service hands out."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from datalens_service.base.errors import InvalidInput
from datalens_service.client import Client
from datalens_service.client.earlier_names import accept_earlier_names
from datalens_service.data import read_upload
from datalens_service.data.dataset import Images, Labels
from datalens_service.data.export import WRITERS
from datalens_service.data.export.image_folder import class_folders
from datalens_service.data.export.release_archive import SUMS

if TYPE_CHECKING:
    from torch import Tensor

Transform = Callable[[Images], Any]
"""Takes one image, uint8 (height, width, channels)."""

_WHITE: Final = 255


class ReleasedImages:
    """Images with labels: a map-style data set for `torch.utils.data.DataLoader`, which asks for no base class.

    PyTorch is imported when the first image is asked for.

    Args:
        class_names: Names in label order.
        transform: Makes an item's first part from an image; None gives a float32 tensor (channels, height, width) in
            [0, 1].
    """

    def __init__(
        self, images: Images, labels: Labels, class_names: Sequence[str], transform: Transform | None = None
    ) -> None:
        if len(images) != len(labels):
            raise InvalidInput(f"There are {len(images)} images and {len(labels)} labels.")
        self.images = images
        self.labels = labels
        self.classes = list(class_names)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        return (_as_tensor if self.transform is None else self.transform)(image), int(self.labels[index])


def from_folder(path: Path, transform: Transform | None = None) -> ReleasedImages:
    """Read released images.

    Args:
        path: A release, unpacked or as a zip; or images alone in any format of `datalens jobs download`.

    Raises:
        InvalidInput: There are no released images.
        InvalidDataset: The file is damaged.
    """
    if path.is_dir():
        return _from_release(path, transform)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="datalens-release-") as folder:
            if SUMS in archive.namelist():
                archive.extractall(folder)
                return _from_release(Path(folder), transform)
    return _from_file(path, transform)


@accept_earlier_names(n="synthetic_images")
def from_job(
    client: Client,
    job_id: str,
    *,
    synthetic_images: int | None = None,
    seed: int | None = None,
    transform: Transform | None = None,
) -> ReleasedImages:
    """Download released images of a job; more images cost no privacy."""
    with tempfile.TemporaryDirectory(prefix="datalens-images-") as folder:
        path = Path(folder) / "images.npz"
        return _from_file(client.download(job_id, path, synthetic_images=synthetic_images, seed=seed), transform)


def _from_file(path: Path, transform: Transform | None) -> ReleasedImages:
    schema, split, _ = read_upload(path)
    return ReleasedImages(split.images, split.labels, schema.class_names, transform)


def _from_release(folder: Path, transform: Transform | None) -> ReleasedImages:
    for writer in WRITERS.values():
        place = folder / writer.archive_place.name
        if place.is_file():
            return _from_file(place, transform)
        if place.is_dir():
            classes = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
            return _from_class_folders(place, tuple(classes["class_names"]), transform)
    places = " nor ".join(writer.archive_place.name for writer in WRITERS.values())
    raise InvalidInput(f"{folder} is no release: it has neither {places}.")


def _from_class_folders(folder: Path, names: tuple[str, ...], transform: Transform | None) -> ReleasedImages:
    """Read PNG files by class, in the order of labels."""
    files = [
        (file, label)
        for label, class_folder in enumerate(class_folders(names))
        for file in sorted((folder / class_folder).glob("*.png"))
    ]
    images = np.stack([_read_picture(file) for file, _ in files])
    return ReleasedImages(images, np.array([label for _, label in files], dtype=np.int64), names, transform)


def _read_picture(file: Path) -> Images:
    with Image.open(file) as picture:
        pixels = np.asarray(picture)
    return pixels.reshape(*pixels.shape[:2], -1)


def _as_tensor(image: Images) -> Tensor:
    from torch import from_numpy

    return from_numpy(image.transpose(2, 0, 1).astype(np.float32) / _WHITE)
