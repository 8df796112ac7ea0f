"""The files a succeeded job leaves: what anybody may get, and what only the owner may."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from datalens_service.data.export import WRITERS, sample_grid
from datalens_service.evaluation.card import card
from datalens_service.evaluation.html import page
from datalens_service.evaluation.pictures import pictures_of
from datalens_service.evaluation.report import Report, owner_view, releasable_view
from datalens_service.models.generator import Generator
from datalens_service.run import Observer
from datalens_service.signatures import SigningKey
from datalens_service.store.artifacts import ArtifactStore
from datalens_service.store.bundle import ACCOUNT_FILE, PROOF_FILE, AccountProof, JobProof, Proof
from datalens_service.store.leases import Lease

PHASE: Final = "packaging"
SAMPLES: Final = "samples.png"

_GRID_CLASSES: Final = 50
_GRID_COLUMNS: Final = 10


class _File(NamedTuple):
    """One file: what makes it, and whether anyone but the owner may get it."""

    name: str
    media_type: str
    releasable: bool
    make: Callable[[], Path | bytes]


def package(
    artifacts: ArtifactStore,
    lease: Lease,
    folder: Path,
    generator: Generator,
    report: Report,
    proof: AccountProof,
    key: SigningKey,
    num_images: int,
    observe: Observer,
) -> None:
    """Store all files of a job under its lease; repeatable.

    Args:
        artifacts: Where to.
        lease: Of the job.
        folder: For files in the making.
        generator: Released.
        report: Private figures included.
        proof: Of what the job cost, with the journal of the account; others get the part about the job.
        key: Of the installation; signs proofs and reports.
        num_images: Synthetic images to pack; more can be drawn later.
        observe: Told of every file.

    Raises:
        StaleLease: Another worker holds the job.
        StoreUnavailable: The disk did not take a file.
    """
    files = _files(folder, generator, report, proof, key, num_images)
    for done, file in enumerate(files):
        observe(PHASE, done, len(files))
        content = file.make()
        artifacts.put(lease, file.name, content, releasable=file.releasable, media_type=file.media_type)
    observe(PHASE, len(files), len(files))


def sample_picture(generator: Generator) -> bytes:
    """PNG with ten images of each of the first fifty classes."""
    labels = np.repeat(np.arange(min(generator.schema.num_classes, _GRID_CLASSES)), _GRID_COLUMNS)
    images, _ = generator.sample(len(labels), labels=labels)
    return sample_grid(images, labels, generator.schema, _GRID_COLUMNS)


def _files(
    folder: Path, generator: Generator, report: Report, proof: AccountProof, key: SigningKey, num_images: int
) -> list[_File]:
    samples = sample_picture(generator)
    releasable, owners = key.sign(releasable_view(report)), key.sign(owner_view(report))
    pictures = pictures_of(generator, num_images)
    return [
        _File("generator.safetensors", "application/octet-stream", True, lambda: _weights(folder, generator)),
        _File("synthetic.npz", "application/octet-stream", True, lambda: _stock(folder, generator, report, num_images)),
        _File(SAMPLES, "image/png", True, lambda: samples),
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


def _stock(folder: Path, generator: Generator, report: Report, num_images: int) -> Path:
    """Images that can be handed out without drawing; every class in turn."""
    path = folder / "synthetic.npz"
    images, labels = generator.sample(num_images)
    WRITERS["npz"](path, images, labels, generator.schema, card(report))
    return path


def _signed(key: SigningKey, proof: Proof) -> bytes:
    return _json(key.sign(proof.model_dump(mode="json")))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode()
