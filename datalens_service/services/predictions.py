"""Predictions of a released classifier on images that somebody sends: read in a confined process, not kept, not logged.

an upload ──▶ confined process: images.npy ──▶ process with torch: probabilities.npy ──▶ answer
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema
from datalens_service.data.sandbox.sandbox import Confinement, decode_images
from datalens_service.errors import InvalidInput
from datalens_service.programs.child_program import Places, run_program
from datalens_service.programs.individual_epsilon import RealisedEpsilon, check_one_record
from datalens_service.settings import Settings
from datalens_service.store.disk import translated

MOST_IMAGES: Final = 1_000
MOST_BYTES: Final = 2**26
_MOST_PROBABILITIES: Final = 200_000
SECONDS: Final = 300
_PREFIX: Final = "images-"


@dataclass(frozen=True)
class Predicted:
    """What a classifier says of images.

    Attributes:
        probabilities: float32 (n, classes); rows sum to 1.
        names: Of the files in the order of the rows; empty where images have no names.
    """

    probabilities: NDArray[np.float32]
    names: tuple[str, ...]


class Predictions:
    """Predicts one request after the other, at most two at once.

    Args:
        settings: Limits of the process that reads images; they lie in the folder `predictions` of data_dir meanwhile.

    Attributes:
        places: For programs that compute with what was read.
    """

    def __init__(self, settings: Settings) -> None:
        self.confinement = Confinement(settings.decode_memory_bytes, min(settings.decode_seconds, SECONDS))
        self._folder = settings.data_dir.absolute() / "predictions"
        self.places = Places()

    def predict_upload(self, classifier: Path, schema: Schema, upload: Path) -> Predicted:
        """Probabilities for the images of a file.

        Args:
            classifier: safetensors.
            schema: Public; which images it takes.
            upload: PNG, JPEG, a zip or tar of them, or NPZ.

        Raises:
            InvalidDataset: The file cannot be used.
            InvalidInput: It is too large, or the images have another size.
            WorkerUnavailable: This machine cannot predict, or is busy.
        """
        if upload.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"The file is larger than {MOST_BYTES // 2**20} MiB. Send fewer images at once.")
        with self.scratch() as folder:
            images, names = decode_images(upload, folder, self.confinement, most_images(schema))
            return Predicted(self._predicted(classifier, schema, images, folder), names)

    def predict_images(self, classifier: Path, schema: Schema, images: Images) -> Predicted:
        """Probabilities for uint8 images (n, height, width, channels).

        Raises:
            InvalidInput: There are too many, or they have another size.
            WorkerUnavailable: This machine cannot predict, or is busy.
        """
        if len(images) > most_images(schema):
            raise InvalidInput(f"Send at most {most_images(schema):,} images at once.")
        with self.scratch() as folder:
            path = folder / "images.npy"
            np.save(path, images)
            return Predicted(self._predicted(classifier, schema, path, folder), ())

    def remove_leftovers(self) -> None:
        """Remove images that a killed process left."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path.stat().st_mtime < time.time() - 2 * SECONDS:
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for the time of one request."""
        with translated("The images could not be read; free the disk of ⟦DATALENS_DATA_DIR⟧."):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=self._folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _predicted(self, classifier: Path, schema: Schema, images: Path, folder: Path) -> NDArray[np.float32]:
        check_size(np.load(images, mmap_mode="r", allow_pickle=False), schema)
        with self.places.take():
            out = folder / "probabilities.npy"
            run_program("datalens_service.programs.prediction", classifier, images, out, seconds=SECONDS)
            return np.asarray(np.load(out, allow_pickle=False))


def most_images(schema: Schema) -> int:
    """How many images one request may have; fewer for many classes."""
    return max(1, min(MOST_IMAGES, _MOST_PROBABILITIES // schema.num_classes))


def check_size(images: Images, schema: Schema) -> None:
    """Refuse images that the classifier does not take.

    Raises:
        InvalidInput: They have another size or other channels, or there is none.
    """
    expected = (schema.height, schema.width, schema.channels)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != expected or not len(images):
        colour = "grey" if schema.channels == 1 else "RGB"
        raise InvalidInput(
            f"The classifier takes images of {schema.width} by {schema.height} pixels, {colour}. Resize or convert "
            "them."
        )


class IndividualEpsilons:
    """Individual ε of a record that somebody sends, from released iterates and the sent image alone.

    The image lies in the folder of predictions meanwhile; neither it nor the answer is kept or logged.

    Args:
        requests: Of images that are sent; they share folder, limits and places.
    """

    def __init__(self, requests: Predictions) -> None:
        self._requests = requests

    def realise_upload(self, iterates: Path, schema: Schema, upload: Path, label: int) -> RealisedEpsilon:
        """For the one image of a file: PNG, JPEG, a zip or tar of it, or NPZ.

        Raises:
            InvalidDataset: The file cannot be used.
            InvalidInput: It is too large, or the image or the label does not fit.
            StateConflict: Units have several records.
            WorkerUnavailable: This machine cannot compute it, or is busy.
        """
        if upload.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"The file is larger than {MOST_BYTES // 2**20} MiB. Send one image.")
        check_one_record(schema, label)
        with self._requests.scratch() as folder:
            images, _ = decode_images(upload, folder, self._requests.confinement, 1)
            return self._computed(iterates, schema, images, label, folder)

    def realise_image(self, iterates: Path, schema: Schema, images: Images, label: int) -> RealisedEpsilon:
        """For uint8 (1, height, width, channels); raises as `realise_upload`."""
        check_one_record(schema, label)
        with self._requests.scratch() as folder:
            path = folder / "images.npy"
            np.save(path, images)
            return self._computed(iterates, schema, path, label, folder)

    def _computed(self, iterates: Path, schema: Schema, images: Path, label: int, folder: Path) -> RealisedEpsilon:
        check_size(np.load(images, mmap_mode="r", allow_pickle=False), schema)
        # In a file: others on the machine can see the command line.
        labels, out = folder / "labels.npy", folder / "epsilon.json"
        np.save(labels, np.array([label]))
        program = "datalens_service.programs.individual_epsilon"
        with self._requests.places.take():
            run_program(program, iterates, images, labels, out, seconds=SECONDS)
        return RealisedEpsilon.model_validate_json(out.read_bytes())
