"""Synthetic images in the number and format asked for, made at the first request and kept as files.

What a job has packed is sliced; more than that, or another seed, is drawn. A process of its own does both: drawing may
need torch, which the API runs without, and up to a million images take minutes.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.data.export.model_card import write_model_archive
from datalens_service.data.export.release_archive import write_bundle
from datalens_service.errors import InvalidInput, NotFound
from datalens_service.methods.descent.iterates import ITERATES_FILE
from datalens_service.programs.child_program import Places, run_program
from datalens_service.programs.sampling import PACKED_IMAGES
from datalens_service.proof.job_proof import PROOF_FILE
from datalens_service.signatures import SigningKey
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.jobs import Job

GENERATOR: Final = "generator.safetensors"
CARD: Final = "card.json"
MAXIMUM_IMAGES: Final = 1_000_000
_MAXIMUM_BYTES: Final = 2**31
_KEPT_FILES: Final = 64
_SECONDS: Final = 1800


_PARTS: Final = (PACKED_IMAGES, GENERATOR, CARD)
_KEY_LENGTH: Final = 16


@dataclass(frozen=True)
class BundleRequest:
    """What goes into a bundle.

    Attributes:
        title: Public name; None names the job.
    """

    format: str
    n: int | None
    seed: int | None
    title: str | None
    licence: str


@dataclass(frozen=True)
class ImageRequest:
    """What the process that makes a file of images is told.

    Attributes:
        packed: NPZ to take them from instead.
    """

    generator: Path
    card: Path
    n: int
    format: str
    seed: int
    packed: Path | None = None


@dataclass(frozen=True)
class SyntheticFile:
    """A file ready to be sent."""

    path: Path
    sha256: str


class SyntheticFiles:
    """Makes and keeps files of synthetic images, anew once the evaluation of a job has changed its card.

    Args:
        data_dir: Made files go to its folder `cache`; the 64 newest are kept.
    """

    def __init__(self, artifacts: ArtifactStore, key: SigningKey, data_dir: Path) -> None:
        self._artifacts = artifacts
        self._key = key
        self._folder = data_dir.absolute() / "cache"
        self._places = Places()

    def get(self, job: Job, schema: Schema, format: str, n: int | None, seed: int | None) -> SyntheticFile:
        """The file for a request.

        Raises:
            InvalidInput: The file would be larger than 2 GiB of pixels.
            WorkerUnavailable: This machine cannot draw, or is busy drawing.
        """
        packed = int(job.spec["synthetic_images"])
        n = packed if n is None else n
        _check_size(n, schema)
        from_stock = seed is None and n <= packed
        if from_stock and n == packed and format == "npz":
            whole = self._artifacts.releasable(job.id, PACKED_IMAGES)
            return SyntheticFile(whole.path, whole.sha256)
        card = self._artifacts.releasable(job.id, CARD).sha256[:_KEY_LENGTH]
        key = f"{job.id}-{n}-{'packed' if from_stock else seed or 0}-{card}"
        return self._kept(key, format, lambda out: self._make(job.id, n, format, seed or 0, out, packed=from_stock))

    def drawn(
        self, generator_id: str, file: Path, card: Path, schema: Schema, format: str, n: int, seed: int
    ) -> SyntheticFile:
        """The file of images that an imported generator draws.

        Raises:
            InvalidInput: The file would be larger than 2 GiB of pixels.
            WorkerUnavailable: This machine cannot draw, or is busy drawing.
        """
        _check_size(n, schema)
        request = ImageRequest(file, card, n, format, seed)
        return self._kept(f"{generator_id}-{n}-{seed}", format, lambda out: make_file(request, out))

    def bundle(self, job: Job, schema: Schema, request: BundleRequest) -> SyntheticFile:
        """The same with everything a data set needs to be published, as a zip.

        Raises:
            NotFound: The job has no proof to go with its images.
        """
        images = self.get(job, schema, request.format, request.n, request.seed)
        card = json.loads(self._artifacts.releasable(job.id, CARD).path.read_text())
        stated = sorted(file.sha256 for file in self._artifacts.list_artifacts(job.id) if file.releasable)
        made_from = f"{request}{images.sha256}{stated}{self._key.public.key_id}"
        named = hashlib.sha256(made_from.encode()).hexdigest()[:_KEY_LENGTH]
        count = int(job.spec["synthetic_images"]) if request.n is None else request.n

        def make(out: Path) -> None:
            write_bundle(
                out,
                images.path,
                request.format,
                card,
                count=count,
                name=request.title or f"Synthetic images {job.id}",
                spdx=request.licence,
                further=self._released(job.id),
                key=self._key,
            )

        return self._kept(f"{job.id}-{named}", "bundle", make)

    def model_archive(self, job: Job, licence: str) -> SyntheticFile:
        """A released model that is no generator, with everything it needs to be published, as a zip.

        Raises:
            NotFound: The job has no proof to go with its model.
        """
        # Iterates are for whoever wants their individual epsilon: far larger than everything else, and no part of it.
        listed = self._artifacts.list_artifacts(job.id)
        public = [file for file in listed if file.releasable and file.name != ITERATES_FILE]
        files = {file.name.replace("-releasable", ""): file for file in public}
        if PROOF_FILE not in files:
            raise NotFound("The job left no proof that may be published.")
        made_from = f"{licence}{sorted(file.sha256 for file in public)}{self._key.public.key_id}"
        named = hashlib.sha256(made_from.encode()).hexdigest()[:_KEY_LENGTH]

        def make(out: Path) -> None:
            content = {name: file.path.read_bytes() for name, file in files.items()}
            write_model_archive(out, content, licence, self._key)

        return self._kept(f"{job.id}-{named}", "model", make)

    def _released(self, job_id: str) -> dict[str, bytes]:
        """Reports, samples and the proof of what the job cost: whatever anybody may get."""
        files = [file for file in self._artifacts.list_artifacts(job_id) if file.releasable and file.name not in _PARTS]
        released = {file.name.replace("-releasable", ""): file.path.read_bytes() for file in files}
        if PROOF_FILE not in released:
            raise NotFound("The job left no proof that may be published; an earlier version made it. Run it again.")
        return released

    def _kept(self, key: str, format: str, make: Callable[[Path], None]) -> SyntheticFile:
        """The file of `key`; its name carries its digest, so nothing else has to be kept."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (kept := self._find(key, format)) is not None:
            return kept
        with self._places.take():
            # Who waited may have waited for the same.
            return self._find(key, format) or self._create(key, format, make)

    def _find(self, key: str, format: str) -> SyntheticFile | None:
        paths = self._folder.glob(f"{key}-*.{format}")
        return next((SyntheticFile(path, path.stem.rpartition("-")[2]) for path in paths), None)

    def _create(self, key: str, format: str, make: Callable[[Path], None]) -> SyntheticFile:
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self._folder) as folder:
            made = Path(folder) / "synthetic"
            make(made)
            with made.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            path = made.replace(self._folder / f"{key}-{digest}.{format}")
        self._remove_oldest()
        return SyntheticFile(path, digest)

    def _make(self, job_id: str, n: int, format: str, seed: int, out: Path, *, packed: bool) -> None:
        generator, card = (self._artifacts.releasable(job_id, name).path for name in (GENERATOR, CARD))
        stock = self._artifacts.releasable(job_id, PACKED_IMAGES).path if packed else None
        make_file(ImageRequest(generator, card, n, format, seed, stock), out)

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.glob("[jg]*_*"), key=lambda path: path.stat().st_mtime)
        for path in files[:-_KEPT_FILES]:
            path.unlink(missing_ok=True)


def make_file(request: ImageRequest, out: Path) -> None:
    """Draw or take images in a process of its own.

    Raises:
        WorkerUnavailable: It lacks something, was killed or took too long.
        ChildProcessError: It broke.
    """
    drawn = (request.generator, request.card, request.n, request.format, request.seed, out)
    packed = () if request.packed is None else (request.packed,)
    run_program("datalens_service.programs.sampling", *drawn, *packed, seconds=_SECONDS)


def _check_size(n: int, schema: Schema) -> None:
    if n * schema.dimensions > _MAXIMUM_BYTES:
        most = _MAXIMUM_BYTES // schema.dimensions
        raise InvalidInput(f"Ask for at most {most} images of this size at once; another ⟦download.seed⟧ gives others.")
