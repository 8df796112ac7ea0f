"""Requests about classifiers: download one, and predict with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from datalens_service.client import requests
from datalens_service.client.models import ClassifierInfo, IndividualEpsilon, PredictionsInfo
from datalens_service.client.requests import ClassifierFormat
from datalens_service.client.transport import Transport


class ClassifierOperations:
    """Methods of the client about classifiers."""

    _transport: Transport

    def classifiers(self) -> Iterator[ClassifierInfo]:
        """Yield all classifiers, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/classifiers", ClassifierInfo)

    def get_classifier(self, classifier_id: str) -> ClassifierInfo:
        """Return a classifier with its card."""
        return self._transport.send("GET", f"/v1/classifiers/{classifier_id}", ClassifierInfo)

    def predict(self, classifier_id: str, images: Path) -> PredictionsInfo:
        """A probability for each class and image. Costs no privacy; the images are not kept.

        Args:
            images: A PNG or JPEG file, a zip or tar of them, or an NPZ with one array named images.
        """
        with images.open("rb") as file:
            url_path = f"/v1/classifiers/{classifier_id}/predictions"
            return self._transport.send("POST", url_path, PredictionsInfo, _build_form(file))

    def individual_epsilon(self, job_id: str, image: Path, label: int) -> IndividualEpsilon:
        """Realised individual ε of one record, from released iterates and this record alone. It is not kept.

        Args:
            job_id: A job of dp_sgd with accounting=per_instance.
            image: A PNG or JPEG file, a zip or tar of it, or an NPZ with one array named images.
        """
        with image.open("rb") as file:
            form = {**_build_form(file), "data": {"label": str(label)}}
            return self._transport.send("POST", f"/v1/jobs/{job_id}/individual-epsilon", IndividualEpsilon, form)

    def download_classifier(
        self, job_id: str, path: Path, *, format: ClassifierFormat = "safetensors", license: str = "other"
    ) -> Path:
        """The classifier of a job as a file.

        Args:
            path: Path of the file, which is replaced once the download is complete.
            format: `safetensors`, `onnx`, or `archive`: a zip with both, card, checksums and proof.
            license: SPDX id, for example CC-BY-4.0, in the archive; `other` chooses none.
        """
        suffix = {"safetensors": "", "onnx": ".onnx", "archive": ".zip"}[format]
        params = {"license": license} if format == "archive" else {}
        url_path = f"/v1/jobs/{job_id}/classifier{suffix}"
        return self._transport.save(url_path, params, path, timeout=requests.DOWNLOAD_SECONDS)


def _build_form(file: BinaryIO) -> dict[str, Any]:
    """A file without its own name, which may be private."""
    return {"files": {"file": ("upload", file)}, "timeout": requests.UPLOAD_SECONDS}
