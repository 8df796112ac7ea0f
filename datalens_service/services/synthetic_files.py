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

import numpy as np

from datalens_service.base.errors import InvalidInput, NotFound
from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Schema
from datalens_service.data.export.content_credentials import MANIFEST_SUFFIX, ContentCredentials, CredentialFiles
from datalens_service.data.export.model_card import write_model_archive
from datalens_service.data.export.pages import DrawnImages
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES
from datalens_service.data.export.release_archive import write_bundle
from datalens_service.methods.descent.iterates import ITERATES_FILE
from datalens_service.proof.job_proof import PROOF_FILE
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.jobs import Job
from datalens_service.subprocesses.child_program import Places, run_program
from datalens_service.subprocesses.sampling import HASHES_SUFFIX, PACKED_IMAGES

GENERATOR: Final = "generator.safetensors"
CARD: Final = "card.json"
MAXIMUM_IMAGES: Final = 1_000_000
USUAL_IMAGES: Final = 1_000
"""Drawn from an imported generator by a request that names no number."""
_MAXIMUM_BYTES: Final = 2**31
_KEPT_FILES: Final = 64
_SECONDS: Final = 1800


_PARTS: Final = (PACKED_IMAGES, GENERATOR, GENERATOR + MANIFEST_SUFFIX, CARD, PIXEL_HASHES)
_KEY_LENGTH: Final = 16


@dataclass(frozen=True)
class Selection:
    """The synthetic images that somebody asks for.

    Attributes:
        synthetic_images: Number of images in all; None takes as many as are usual there.
        per_class: Number of images of each class, instead.
        classes: Names of classes, or their numbers in label order, which take turns; empty takes all.
        seed: None takes those that the job has packed, as far as they go.
    """

    format: str
    synthetic_images: int | None = None
    per_class: int | None = None
    classes: tuple[str, ...] = ()
    seed: int | None = None

    def find_labels(self, schema: Schema) -> tuple[int, ...]:
        """Return the labels of the named classes; empty for all.

        Raises:
            InvalidInput: There is no such class, or one is named twice.
        """
        labels = tuple(_find_label(name, schema) for name in self.classes)
        if len(set(labels)) < len(labels):
            raise InvalidInput("⟦download.classes⟧ names a class twice.")
        return labels

    def list_labels(self, schema: Schema) -> tuple[int, ...]:
        """Return the labels of classes that take turns; empty where classes are as frequent as usual.

        Raises:
            InvalidInput: There is no such class, or one is named twice.
        """
        named = self.find_labels(schema)
        return named if named or self.per_class is None else tuple(range(schema.num_classes))

    def count(self, usual: int, schema: Schema) -> int:
        """Return how many images these are.

        Raises:
            InvalidInput: Two numbers were named, or the images are too many or too large.
        """
        if self.synthetic_images is not None and self.per_class is not None:
            raise InvalidInput("Name either ⟦download.synthetic_images⟧ or ⟦download.per_class⟧.")
        if self.per_class is not None:
            usual = self.per_class * (len(self.classes) or schema.num_classes)
        count = self.synthetic_images or usual
        most = min(MAXIMUM_IMAGES, _MAXIMUM_BYTES // schema.dimensions)
        if count > most:
            raise InvalidInput(
                f"Ask for at most {most} images of this size at once; another ⟦download.seed⟧ gives others."
            )
        return count


def _find_label(name: str, schema: Schema) -> int:
    if name in schema.class_names:
        return schema.class_names.index(name)
    if name.isascii() and name.isdecimal() and int(name) < schema.num_classes:
        return int(name)
    raise InvalidInput(f"⟦download.classes⟧ names “{name[:80]}”, which is no class of these images.")


@dataclass(frozen=True)
class BundleRequest:
    """The content of a bundle.

    Attributes:
        title: Public name; None names the job.
    """

    selection: Selection
    title: str | None
    licence: str


@dataclass(frozen=True)
class ImageRequest:
    """Input of the process that makes a file of images.

    Attributes:
        labels: Classes that take turns; empty for all, as frequent as usual.
        packed: NPZ to take them from instead.
    """

    generator: Path
    card: Path
    n: int
    format: str
    seed: int = 0
    labels: tuple[int, ...] = ()
    packed: Path | None = None


@dataclass(frozen=True)
class SyntheticFile:
    """A file ready to be sent.

    Attributes:
        hashes: File with the hashes of its synthetic images; None if it has none, or they are not known.
    """

    path: Path
    sha256: str
    hashes: Path | None = None


class SyntheticFiles:
    """Makes and keeps files of synthetic images, anew once the evaluation of a job has changed its card.

    Args:
        data_dir: Made files go to its folder `cache`; the 64 newest are kept.
        credentials: Signs images in the name of the operator; None if there is no certificate.
    """

    def __init__(
        self, artifacts: ArtifactStore, key: SigningKey, data_dir: Path, credentials: ContentCredentials | None = None
    ) -> None:
        self._artifacts = artifacts
        self._key = key
        self.credentials: Final = credentials
        self._folder = data_dir.absolute() / "cache"
        self._places = Places()

    def get(self, job: Job, schema: Schema, selection: Selection) -> SyntheticFile:
        """Return the file of selected images; as many as were packed are usual.

        Raises:
            InvalidInput: There is no such class, or the file would be larger than 2 GiB of pixels.
            WorkerUnavailable: This machine cannot draw, or is busy drawing.
        """
        packed = int(job.spec["synthetic_images"])
        n, labels = selection.count(packed, schema), selection.list_labels(schema)
        from_stock = selection.seed is None and n <= packed and self._holds(job, schema, selection)
        if from_stock and not labels and n == packed and selection.format == "npz":
            whole = self._artifacts.releasable(job.id, PACKED_IMAGES)
            listed = {file.name: file for file in self._artifacts.list_artifacts(job.id)}
            hashes = listed.get(PIXEL_HASHES)
            return SyntheticFile(whole.path, whole.sha256, None if hashes is None else hashes.path)
        generator, card = (self._artifacts.releasable(job.id, name) for name in (GENERATOR, CARD))
        stock = self._artifacts.releasable(job.id, PACKED_IMAGES).path if from_stock else None
        request = ImageRequest(generator.path, card.path, n, selection.format, selection.seed or 0, labels, stock)
        return self._kept_images(job.id, request, card.sha256)

    def _holds(self, job: Job, schema: Schema, selection: Selection) -> bool:
        """Tell whether a job has packed enough images of every class; of named classes they are always drawn."""
        if selection.classes or selection.per_class is None:
            return not selection.classes
        with np.load(self._artifacts.releasable(job.id, PACKED_IMAGES).path, allow_pickle=False) as stock:
            counts = np.bincount(stock["train_labels"].reshape(-1), minlength=schema.num_classes)
        return bool(counts.min() >= selection.per_class)

    def drawn(self, generator_id: str, file: Path, card: Path, schema: Schema, selection: Selection) -> SyntheticFile:
        """Return the file of images that an imported generator draws; 1,000 are usual.

        Raises:
            InvalidInput: There is no such class, or the file would be larger than 2 GiB of pixels.
            WorkerUnavailable: This machine cannot draw, or is busy drawing.
        """
        n, labels = selection.count(USUAL_IMAGES, schema), selection.list_labels(schema)
        request = ImageRequest(file, card, n, selection.format, selection.seed or 0, labels)
        return self._kept_images(generator_id, request, "")

    def _kept_images(self, origin: str, request: ImageRequest, card_digest: str) -> SyntheticFile:
        source = request.seed if request.packed is None else "packed"
        files = None if self.credentials is None else self.credentials.files
        made_from = f"{source}{request.labels}{card_digest}{_digest(files)}"
        named = hashlib.sha256(made_from.encode()).hexdigest()[:_KEY_LENGTH]
        return self._kept(f"{origin}-{request.n}-{named}", request.format, lambda out: make_file(request, out, files))

    def bundle(self, job: Job, schema: Schema, request: BundleRequest) -> SyntheticFile:
        """The same with everything a data set needs to be published, as a zip.

        Raises:
            NotFound: The job has no proof to go with its images.
        """
        selection = request.selection
        images = self.get(job, schema, selection)
        card = json.loads(self._artifacts.releasable(job.id, CARD).path.read_text())
        stated = sorted(file.sha256 for file in self._artifacts.list_artifacts(job.id) if file.releasable)
        made_from = f"{request}{images.sha256}{stated}{self._key.public.key_id}"
        named = hashlib.sha256(made_from.encode()).hexdigest()[:_KEY_LENGTH]
        classes = tuple(schema.class_names[label] for label in selection.find_labels(schema))
        drawn = DrawnImages(selection.count(int(job.spec["synthetic_images"]), schema), classes)

        def make(out: Path) -> None:
            write_bundle(
                out,
                images.path,
                selection.format,
                card,
                drawn=drawn,
                name=request.title or f"Synthetic images {job.id}",
                spdx=request.licence,
                further={**self._released(job.id), **_read_hashes(images)},
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
            # A request that waited may have waited for the same file.
            return self._find(key, format) or self._create(key, format, make)

    def _find(self, key: str, format: str) -> SyntheticFile | None:
        path = next(self._folder.glob(f"{key}-*.{format}"), None)
        if path is None:
            return None
        hashes = _locate_hashes(path)
        return SyntheticFile(path, path.stem.rpartition("-")[2], hashes if hashes.exists() else None)

    def _create(self, key: str, format: str, make: Callable[[Path], None]) -> SyntheticFile:
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self._folder) as folder:
            made = Path(folder) / "synthetic"
            make(made)
            with made.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            path = self._folder / f"{key}-{digest}.{format}"
            beside = _locate_hashes(made)
            hashes = beside.replace(_locate_hashes(path)) if beside.exists() else None
            made.replace(path)
        self._remove_oldest()
        return SyntheticFile(path, digest, hashes)

    def _remove_oldest(self) -> None:
        made = [path for path in self._folder.glob("[jg]*_*") if path.suffix != HASHES_SUFFIX]
        for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-_KEPT_FILES]:
            path.unlink(missing_ok=True)
            _locate_hashes(path).unlink(missing_ok=True)


def _locate_hashes(path: Path) -> Path:
    """Return the place of the hashes of a file's images, beside it."""
    return path.with_name(path.name + HASHES_SUFFIX)


def _read_hashes(images: SyntheticFile) -> dict[str, bytes]:
    """Return the file of an archive with the hashes of its images, by its name; nothing where they are not known."""
    return {} if images.hashes is None else {PIXEL_HASHES: images.hashes.read_bytes()}


def _digest(files: CredentialFiles | None) -> str:
    """Return a name of the certificate, as images that another one signs are other files."""
    return "" if files is None else hashlib.sha256(files.certificate.read_bytes()).hexdigest()


def make_file(request: ImageRequest, out: Path, signing: CredentialFiles | None = None) -> None:
    """Draw or take images in a process of its own, which signs them with these files.

    Raises:
        WorkerUnavailable: It lacks something, was killed or took too long.
        ChildProcessError: It broke.
    """
    classes = ",".join(map(str, request.labels))
    drawn = (request.generator, request.card, request.n, classes, request.format, request.seed, out)
    run_program(
        "datalens_service.subprocesses.sampling", *drawn, request.packed or "", *(signing or ("", "")), seconds=_SECONDS
    )
