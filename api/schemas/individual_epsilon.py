"""One record, and what a job cost it: request and form. The answer is that of the computation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.classifiers import Pixel
from datalens_service.strict import Integer

_LABEL = Field(ge=0, le=2**31, description="Index of its class, in the order of `class_names` of the data set.")


class IndividualEpsilonForm(BaseModel):
    """Fields beside the file with the image."""

    model_config = ConfigDict(extra="forbid")

    label: Integer = _LABEL


class IndividualEpsilonRequest(BaseModel):
    """A record as numbers."""

    model_config = ConfigDict(extra="forbid")

    image: list[list[Pixel]] = Field(
        min_length=1,
        description="Rows of pixels from 0 to 255: [row][column] of a grey image, [row][column][channel] of others.",
    )
    label: Integer = _LABEL
