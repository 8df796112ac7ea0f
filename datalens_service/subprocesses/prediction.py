"""Class probabilities by a released classifier: post-processing, free, however often.

Predicting needs torch, so the API does it in a process of its own:

    python -m datalens_service.subprocesses.prediction CLASSIFIER IMAGES OUT
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError

from datalens_service.base.errors import InvalidInput
from datalens_service.subprocesses.child_program import end_with, say_what_is_missing

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier


def load_classifier(path: Path) -> Classifier:
    """Load a classifier from its file; no code is run from it.

    Raises:
        InvalidInput: It is none that this product has exported.
    """
    from datalens_service.models.classifiers.classifier import Classifier

    try:
        return Classifier.load(path)
    except (SafetensorError, ValidationError, KeyError, ValueError, TypeError) as error:
        raise InvalidInput("The file is not a classifier that this product has exported as safetensors.") from error


def write_predictions(classifier_path: Path, images_path: Path, out_path: Path) -> None:
    """Predict and write float32 probabilities (n, classes) as .npy.

    Raises:
        WorkerUnavailable: The classifier needs torch, and it is not installed.
        InvalidInput: The images have another size or other channels.
    """
    images = np.load(images_path, allow_pickle=False)
    classifier = load_classifier(classifier_path)
    with say_what_is_missing("Predicting"):
        probabilities = classifier.predict(images)
    np.save(out_path, np.asarray(probabilities, dtype=np.float32))


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict as the command line says, and return the exit status of `child_program`."""
    return end_with(lambda *paths: write_predictions(*map(Path, paths)), arguments)


if __name__ == "__main__":
    sys.exit(main())
