"""Individual ε of a record that somebody sends: from released iterates and the sent image, in a process of its own.

Neither the records of the data set nor what is known of them is read. The image lies in the folder of predictions
meanwhile; it is neither kept nor logged, and nor is the answer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datalens_service.data.dataset import Images, Schema
from datalens_service.data.sandbox.sandbox import decode_images
from datalens_service.errors import InvalidInput
from datalens_service.programs.child_program import run_program
from datalens_service.programs.individual_epsilon import RealisedEpsilon, check_one_record
from datalens_service.services.predictions import MOST_BYTES, SECONDS, Predictions, check_size


class IndividualEpsilons:
    """Answers one request after the other.

    Args:
        requests: Of images that are sent; they share folder, limits and places.
    """

    def __init__(self, requests: Predictions) -> None:
        self._requests = requests

    def of_upload(self, iterates: Path, schema: Schema, upload: Path, label: int) -> RealisedEpsilon:
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

    def of_image(self, iterates: Path, schema: Schema, images: Images, label: int) -> RealisedEpsilon:
        """For uint8 (1, height, width, channels); raises as `of_upload`."""
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
