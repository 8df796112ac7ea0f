"""Classifies images that somebody sends: read in a confined process, not kept, not logged.

an upload ──▶ confined process: images.npy ──▶ process with torch ──▶ answer
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Images, Schema
from datalens_service.data.intake.sandbox.sandbox import decode_images
from datalens_service.store.datasets import upload_room
from datalens_service.store.disk import lock_folder, translated
from datalens_service.subprocesses.child_program import Places, run_program
from datalens_service.subprocesses.individual_epsilon import RealisedEpsilon, check_one_record

MOST_IMAGES: Final = 1_000
MOST_BYTES: Final = 2**26
_MOST_PROBABILITIES: Final = 200_000
SECONDS: Final = 300
_PREFIX: Final = "images-"


@dataclass(frozen=True)
class Predicted:
    """A classifier's answers for images."""

    probabilities: NDArray[np.float32]
    names: tuple[str, ...]


class Predictions:
    """Computes with images that somebody sends, one request after the other, at most two at once.

    Args:
        settings: Limits of the process that reads images; they lie in the folder `predictions` of data_dir meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = _folder(settings.data_dir)
        self._places = Places()

    def predict(self, classifier: Path, schema: Schema, sent: Path | Images) -> Predicted:
        """Probabilities for images.

        Args:
            schema: Public; which images it takes.
            sent: PNG, JPEG, a zip or tar of them, or NPZ; or uint8 (n, height, width, channels).

        Raises:
            InvalidDataset: The file cannot be used.
            InvalidInput: It is too large, or there are too many images, or they have another size.
            WorkerUnavailable: This machine cannot predict, or is busy.
        """
        most = max(1, min(MOST_IMAGES, _MOST_PROBABILITIES // schema.num_classes))
        with self._received(sent, schema, most) as (images, names):
            out = images.with_name("probabilities.npy")
            run_program("datalens_service.subprocesses.prediction", classifier, images, out, seconds=SECONDS)
            return Predicted(np.asarray(np.load(out, allow_pickle=False)), names)

    def realise_epsilon(self, iterates: Path, schema: Schema, sent: Path | Images, label: int) -> RealisedEpsilon:
        """Individual ε of the one record that was sent, from released iterates and its image alone.

        Raises:
            InvalidDataset: The file cannot be used.
            InvalidInput: It is too large, or the image or the label does not fit.
            StateConflict: Units have several records.
            WorkerUnavailable: This machine cannot compute it, or is busy.
        """
        check_one_record(schema, label)
        with self._received(sent, schema, 1) as (images, _):
            # In a file: others on the machine can see the command line.
            labels, out = images.with_name("labels.npy"), images.with_name("epsilon.json")
            np.save(labels, np.array([label]))
            program = "datalens_service.subprocesses.individual_epsilon"
            run_program(program, iterates, images, labels, out, seconds=SECONDS)
            return RealisedEpsilon.model_validate_json(out.read_bytes())

    @contextmanager
    def _received(self, sent: Path | Images, schema: Schema, most: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Images as .npy in a folder and a place of their own for the time of the block, and names of their files."""
        if isinstance(sent, Path) and sent.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"The file is larger than {MOST_BYTES // 2**20} MiB. Send fewer images at once.")
        if not isinstance(sent, Path) and len(sent) > most:
            raise InvalidInput(f"Send at most {most:,} images at once.")
        with ExitStack() as held:
            with translated("The images could not be read; free the disk of ⟦DATALENS_DATA_DIR⟧."):
                held.enter_context(lock_folder(self._folder, fcntl.LOCK_SH))
            name = held.enter_context(
                tempfile.TemporaryDirectory(prefix=_PREFIX, dir=self._folder, ignore_cleanup_errors=True)
            )
            images, names = Path(name) / "images.npy", tuple[str, ...]()
            if isinstance(sent, Path):
                seconds = min(self._settings.decode_seconds, SECONDS)
                confinement = upload_room.confine(self._settings, Path(name), seconds)
                images, names = decode_images(sent, Path(name), confinement, most)
            else:
                np.save(images, sent)
            _check_size(np.load(images, mmap_mode="r", allow_pickle=False), schema)
            with self._places.take():
                yield images, names


def remove_abandoned(data_dir: Path) -> None:
    """Remove images that a killed process left, unless another process reads some now."""
    folder = _folder(data_dir)
    with suppress(BlockingIOError), lock_folder(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)


def _folder(data_dir: Path) -> Path:
    return data_dir.absolute() / "predictions"


def _check_size(images: Images, schema: Schema) -> None:
    """Refuse images that the classifier does not take."""
    expected = (schema.height, schema.width, schema.channels)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != expected or not len(images):
        colour = "grey" if schema.channels == 1 else "RGB"
        raise InvalidInput(
            f"The classifier takes images of {schema.width} by {schema.height} pixels, {colour}. Resize or convert "
            "them."
        )
