"""Classifiers and their predictions, as requests and answers."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, Field

from datalens_service.api.addresses import Link
from datalens_service.base.errors import InvalidInput
from datalens_service.base.fields import Integer, Strict, copied
from datalens_service.client.models import ClassifierInfo, PredictionInfo
from datalens_service.data.dataset import Images
from datalens_service.services.predictions import MOST_IMAGES, Predicted
from datalens_service.store.jobs.released_models import StoredModel

Grey = Annotated[Integer, Field(ge=0, le=255)]
Pixel = Grey | Annotated[list[Grey], Field(min_length=1, max_length=4)]


class ClassifierRead(ClassifierInfo):
    """A classifier: gives each image a probability for each class, free of further cost."""

    links: ClassifierLinks

    @classmethod
    def from_model(cls, classifier: StoredModel, card: dict[str, Any] | None) -> Self:
        return copied(cls, classifier, card=card, links=ClassifierLinks.from_model(classifier))


class ClassifierLinks(BaseModel):
    """Links of a classifier."""

    self_: Link = Field(serialization_alias="self")
    predictions: Link
    safetensors: Link
    onnx: Link
    job: Link

    @classmethod
    def from_model(cls, classifier: StoredModel) -> Self:
        base, job = f"/v1/classifiers/{classifier.id}", f"/v1/jobs/{classifier.job_id}"
        return cls(
            self_=base,
            predictions=f"{base}/predictions",
            safetensors=f"{job}/classifier",
            onnx=f"{job}/classifier.onnx",
            job=job,
        )


class PredictionForm(Strict):
    """Fields beside the file of a prediction: none."""


class EncoderForm(Strict):
    """Fields beside the file of an encoder: none."""


class PredictionRequest(Strict):
    """Images to classify, as numbers."""

    images: list[list[list[Pixel]]] = Field(
        min_length=1,
        max_length=MOST_IMAGES,
        description="Rows of pixels from 0 to 255: [image][row][column] of grey images, [image][row][column][channel] "
        "of others.",
    )


def read_pixels(images: list[list[list[Pixel]]]) -> Images:
    """Images as uint8 (n, height, width, channels).

    Raises:
        InvalidInput: They differ in size.
    """
    try:
        pixels = np.array(images, dtype=np.uint8)
    except ValueError:
        raise InvalidInput("All images must have the same number of rows, columns and channels.") from None
    return pixels[..., np.newaxis] if pixels.ndim == 3 else pixels


class Prediction(PredictionInfo):
    """The classifier's answer for one image."""


class PredictionList(BaseModel):
    """The classifier's answer for each image: files of an archive by name, everything else in the order it came."""

    class_names: list[str]
    items: list[Prediction]

    @classmethod
    def from_predictions(cls, predicted: Predicted, class_names: tuple[str, ...]) -> Self:
        """The answer for a request."""
        files = predicted.names or (None,) * len(predicted.probabilities)
        items = [
            Prediction(file=file, class_name=class_names[int(row.argmax())], probabilities=[float(one) for one in row])
            for file, row in zip(files, predicted.probabilities, strict=True)
        ]
        return cls(class_names=list(class_names), items=items)


_LABEL = Field(ge=0, le=2**31, description="Index of its class, in the order of `class_names` of the data set.")


class IndividualEpsilonForm(Strict):
    """Fields beside the file with the image."""

    label: Integer = _LABEL


class IndividualEpsilonRequest(Strict):
    """A record as numbers."""

    image: list[list[Pixel]] = Field(
        min_length=1,
        description="Rows of pixels from 0 to 255: [row][column] of a grey image, [row][column][channel] of others.",
    )
    label: Integer = _LABEL
