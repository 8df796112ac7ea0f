"""The process that reads images for a prediction: `python -m datalens_service.data.intake.sandbox.decode_images`.

It works like `decode.py`, with images that have no labels, and leaves them as `images.npy` in its folder.
"""

import sys
from functools import partial
from typing import Final

import numpy as np

from datalens_service.data.intake.readers.unlabelled import read_unlabelled
from datalens_service.data.intake.sandbox.exchange import FileRequest, ReadingOutcome, serve
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS

IMAGES: Final = "images.npy"


class ImagesRequest(FileRequest):
    most_images: int


def main() -> None:
    request = ImagesRequest.model_validate_json(sys.stdin.buffer.read())
    serve(request, partial(read_images, request))


def read_images(request: ImagesRequest) -> ReadingOutcome:
    """Read the images and keep them.

    Raises:
        OSError: The disk did not take the images.
    """
    images, names = read_unlabelled(request.path, DEFAULT_LIMITS, request.most_images)
    np.save(request.folder / IMAGES, images)
    return ReadingOutcome(names=names)


if __name__ == "__main__":
    main()
