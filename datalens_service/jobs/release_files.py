"""The files of each kind of released model, beside those that state what it cost.

any model      what its `files()` name, and what the run released beside it
generator      also synthetic images, and a grid of samples
classifier     also its card for model hubs
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from datalens_service.base.progress import Tell
from datalens_service.base.signatures import SigningKey
from datalens_service.data.export import WRITERS, WrittenImages, sample_grid
from datalens_service.data.export.content_credentials import (
    MANIFEST_SUFFIX,
    MANIFEST_TYPE,
    ContentCredentials,
    is_model,
)
from datalens_service.data.export.model_card import model_card
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES, list_hashes
from datalens_service.data.export.png import choose_encoder
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedFile, ReleasedModel
from datalens_service.proof.job_proof import AccountProof
from datalens_service.report.build import Report
from datalens_service.report.card import card
from datalens_service.report.pictures import Pictures, draw_pictures
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.leases import Lease
from datalens_service.subprocesses.sampling import PACKED_IMAGES

SAMPLES: Final = "samples.png"
MODEL_CARD: Final = "README.md"
DRAWN: Final = (PACKED_IMAGES, SAMPLES)
"""Files of images, which take long to draw."""

_DRAWING_LENGTH: Final = 100
_GRID_CLASSES: Final = 50
_GRID_COLUMNS: Final = 10


class JobFile(NamedTuple):
    """A file of a job: the function that makes it, and whether anyone but the owner may get it."""

    name: str
    media_type: str
    releasable: bool
    make: Callable[[Tell], Path | bytes]
    length: int = 1
    """Times most of the others, to make it."""


class ReleaseContents(NamedTuple):
    """Contents of the files of a job.

    Attributes:
        report: Private figures included.
        proof: Proof of the job's cost, with the journal of the account; others get the part about the job.
        key: Key of the installation, which signs proofs and reports.
        extras: Files and figures that the run released beside the model.
        credentials: Signs images and models in the name of the operator; None if there is no certificate.
    """

    folder: Path
    model: ReleasedModel
    report: Report
    proof: AccountProof
    key: SigningKey
    num_images: int
    extras: tuple[ReleasedFile, ...] = ()
    credentials: ContentCredentials | None = None


def released_files(contents: ReleaseContents) -> list[JobFile]:
    """Return the released files: what is drawn from the model, and the model itself."""
    model_files = [_written(contents.folder, file) for file in (*contents.model.files(), *contents.extras)]
    if contents.credentials is not None:
        sign = partial(_manifest, contents.folder, contents.credentials)
        model_files += [sign(file.name) for file in contents.model.files() if is_model(file.name)]
    if not isinstance(generator := contents.model, Generator):
        return [*model_files, *_carded(contents)]
    samples = JobFile(SAMPLES, "image/png", True, lambda _tell: sample_picture(generator, contents.credentials))
    hashes = [] if generator.verbatim else [_hashes(contents.folder)]
    return [*model_files, _packed(contents, generator), samples, *hashes]


def files_with_card(contents: ReleaseContents) -> list[JobFile]:
    """Return the released files that repeat the card, so change with its figures."""
    model = contents.model
    return [_packed(contents, model)] if isinstance(model, Generator) else _carded(contents)


def report_pictures(contents: ReleaseContents) -> Pictures | None:
    """Draw the pictures of a report from released images; None of a model that draws none."""
    model = contents.model
    return draw_pictures(model, contents.num_images) if isinstance(model, Generator) else None


def sample_picture(generator: Generator, credentials: ContentCredentials | None = None) -> bytes:
    """PNG with ten images of each of the first fifty classes."""
    labels = np.repeat(np.arange(min(generator.schema.num_classes, _GRID_CLASSES)), _GRID_COLUMNS)
    images, _ = generator.sample(len(labels), labels=labels)
    encode = choose_encoder(generator.verbatim, credentials)
    return sample_grid(images, labels, generator.schema, _GRID_COLUMNS, encode)


def _written(folder: Path, file: ReleasedFile) -> JobFile:
    def make(_tell: Tell) -> Path:
        path = folder / file.name
        file.write(path)
        return path

    return JobFile(file.name, file.media_type, True, make)


def _manifest(folder: Path, credentials: ContentCredentials, name: str) -> JobFile:
    """Sign a file of the model, which was written before."""
    return JobFile(name + MANIFEST_SUFFIX, MANIFEST_TYPE, True, lambda _tell: credentials.sign_model(folder / name))


def _packed(contents: ReleaseContents, generator: Generator) -> JobFile:
    make = partial(_pack_images, contents, generator)
    return JobFile(PACKED_IMAGES, "application/octet-stream", True, make, _DRAWING_LENGTH)


def _hashes(folder: Path) -> JobFile:
    """The hashes of the packed images, which were drawn before."""

    def make(_tell: Tell) -> Path:
        with np.load(folder / PACKED_IMAGES, allow_pickle=False) as packed:
            images = packed["train_images"]
        path = folder / PIXEL_HASHES
        path.write_text(list_hashes(images.reshape(*images.shape[:3], -1)))
        return path

    return JobFile(PIXEL_HASHES, "text/plain", True, make)


def _pack_images(contents: ReleaseContents, generator: Generator, tell: Tell) -> Path:
    """Images that can be handed out without drawing; every class in turn."""
    path = contents.folder / PACKED_IMAGES
    images, labels = generator.sample(contents.num_images, observe=lambda drawn, asked: tell(drawn / asked))
    soft = generator.soft_labels(contents.num_images)
    WRITERS["npz"].write(path, WrittenImages(images, labels, generator.schema, card(contents.report), soft))
    return path


def _carded(contents: ReleaseContents) -> list[JobFile]:
    """The card as model hubs read it."""
    stated: dict[str, Any] = card(contents.report)
    text = model_card(stated, contents.model.result, [file.name for file in contents.model.files()])
    return [JobFile(MODEL_CARD, "text/markdown", True, lambda _tell: text.encode())]


KEPT_PREVIEW: Final = "preview-"
"""Prefix of the names of grids that are kept and show how the generator learned."""


class SamplePreviews:
    """Replaces the job's sample grid now and then; the last one comes with the other files.

    The grids number 1, 2, 4, 8 and so on stay beside it: few, however long a job takes.

    Args:
        seconds: Least time between two grids; drawing one that takes long is done less often.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        lease: Lease,
        seconds: float = 10.0,
        *,
        credentials: ContentCredentials | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._lease = lease
        self._credentials = credentials
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._shown = max((_number(file.name) for file in artifacts.list_artifacts(lease.job_id)), default=0)

    def due(self) -> bool:
        """Return True if enough time has passed since the last one."""
        return time.monotonic() >= self._next

    def show(self, model: ReleasedModel) -> None:
        """Store the grid of a generator; of another model nothing is shown."""
        if not isinstance(model, Generator):
            return
        began = time.monotonic()
        picture = sample_picture(model, self._credentials)
        self._put(SAMPLES, picture)
        self._shown += 1
        if self._shown & (self._shown - 1) == 0:
            self._put(f"{KEPT_PREVIEW}{self._shown:04d}.png", picture)
        now = time.monotonic()
        self._next = now + max(self._seconds, 20 * (now - began))

    def _put(self, name: str, picture: bytes) -> None:
        self._artifacts.put(self._lease, name, picture, releasable=True, media_type="image/png")


def _number(name: str) -> int:
    number = name.removeprefix(KEPT_PREVIEW).removesuffix(".png")
    return int(number) if name.startswith(KEPT_PREVIEW) and number.isdigit() else 0
