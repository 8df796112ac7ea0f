"""The files a job leaves: what anybody may get, and what only the owner may.

They are stored twice: as soon as training has ended, so that nobody waits for figures to get images; and once the
figures are there, those files again that state them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from datalens_service.data.export import WRITERS, sample_grid
from datalens_service.errors import JobStopped
from datalens_service.evaluation.report.build import Report, owner_view, releasable_view
from datalens_service.evaluation.report.card import card
from datalens_service.evaluation.report.html import page
from datalens_service.evaluation.report.pictures import draw_pictures
from datalens_service.models.generators.generator import Generator
from datalens_service.proof.job_proof import ACCOUNT_FILE, PROOF_FILE, AccountProof, JobProof, Proof
from datalens_service.run import Observer
from datalens_service.signatures import SigningKey
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.leases import Lease

PHASE: Final = "packaging"
REPORTING: Final = "reporting"
SAMPLES: Final = "samples.png"

_GRID_CLASSES: Final = 50
_GRID_COLUMNS: Final = 10


class _File(NamedTuple):
    """One file: what makes it, and whether anyone but the owner may get it."""

    name: str
    media_type: str
    releasable: bool
    make: Callable[[], Path | bytes]


class ReleaseContents(NamedTuple):
    """What the files of a job are made of.

    Attributes:
        folder: For files in the making.
        generator: Released.
        report: Private figures included.
        proof: Of what the job cost, with the journal of the account; others get the part about the job.
        key: Of the installation; signs proofs and reports.
        num_images: Synthetic images to pack; more can be drawn later.
    """

    folder: Path
    generator: Generator
    report: Report
    proof: AccountProof
    key: SigningKey
    num_images: int


def package(artifacts: ArtifactStore, lease: Lease, contents: ReleaseContents, observe: Observer) -> None:
    """Store all files of a job under its lease; repeatable.

    Paid for as they are, they are stored also if somebody asks the job to stop meanwhile.

    Args:
        artifacts: Where to.
        lease: Of the job.
        contents: What they are made of.
        observe: Told of every file.

    Raises:
        StaleLease: Another worker holds the job.
        StoreUnavailable: The disk did not take a file.
    """
    _store(artifacts, lease, PHASE, [*_drawn(contents), *_stated(contents)], observe)


def restate(artifacts: ArtifactStore, lease: Lease, contents: ReleaseContents, observe: Observer) -> None:
    """Replace the files of a job that state its figures, now that it was evaluated; arguments as `package`."""
    files = _stated(contents)
    if card(contents.report)["measures"]:
        files = [_packed(contents), *files]
    _store(artifacts, lease, REPORTING, files, observe)


def _store(artifacts: ArtifactStore, lease: Lease, phase: str, files: list[_File], observe: Observer) -> None:
    for done, file in enumerate(files):
        _observe_paid(observe, phase, done, len(files))
        content = file.make()
        artifacts.put(lease, file.name, content, releasable=file.releasable, media_type=file.media_type)
    _observe_paid(observe, phase, len(files), len(files))


def _observe_paid(observe: Observer, phase: str, value: int, maximum: int) -> None:
    """Observe a step behind the last release: a cancel request comes too late to take the files away."""
    with suppress(JobStopped):
        observe(phase, value, maximum)


def sample_picture(generator: Generator) -> bytes:
    """PNG with ten images of each of the first fifty classes."""
    labels = np.repeat(np.arange(min(generator.schema.num_classes, _GRID_CLASSES)), _GRID_COLUMNS)
    images, _ = generator.sample(len(labels), labels=labels)
    return sample_grid(images, labels, generator.schema, _GRID_COLUMNS)


def _drawn(contents: ReleaseContents) -> list[_File]:
    """What is drawn from the generator, and itself."""
    folder, generator = contents.folder, contents.generator
    return [
        _File("generator.safetensors", "application/octet-stream", True, lambda: _weights(folder, generator)),
        _packed(contents),
        _File(SAMPLES, "image/png", True, lambda: sample_picture(generator)),
    ]


def _packed(contents: ReleaseContents) -> _File:
    return _File("synthetic.npz", "application/octet-stream", True, lambda: _pack_images(contents))


def _stated(contents: ReleaseContents) -> list[_File]:
    """What states cost and figures, signed."""
    report, proof, key = contents.report, contents.proof, contents.key
    releasable, owners = key.sign(releasable_view(report)), key.sign(owner_view(report))
    pictures = draw_pictures(contents.generator, contents.num_images)
    return [
        _File("card.json", "application/json", True, lambda: _json(card(report))),
        _File(PROOF_FILE, "application/json", True, lambda: _signed(key, JobProof.of(proof))),
        _File("report-releasable.json", "application/json", True, lambda: _json(releasable)),
        _File("report-releasable.html", "text/html", True, lambda: page(releasable, pictures).encode()),
        _File(ACCOUNT_FILE, "application/json", False, lambda: _signed(key, proof)),
        _File("report.json", "application/json", False, lambda: _json(owners)),
        _File("report.html", "text/html", False, lambda: page(owners, pictures).encode()),
    ]


def _weights(folder: Path, generator: Generator) -> Path:
    path = folder / "generator.safetensors"
    generator.save(path)
    return path


def _pack_images(contents: ReleaseContents) -> Path:
    """Images that can be handed out without drawing; every class in turn."""
    path = contents.folder / "synthetic.npz"
    images, labels = contents.generator.sample(contents.num_images)
    WRITERS["npz"].write(path, images, labels, contents.generator.schema, card(contents.report))
    return path


def _signed(key: SigningKey, proof: Proof) -> bytes:
    return _json(key.sign(proof.model_dump(mode="json")))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode()
