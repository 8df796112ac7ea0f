"""Detectors on audits: what attacks find stays with the owner, and references know no candidate."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from datalens_service.audits import audit
from datalens_service.audits.attacks import MEMBERSHIP
from datalens_service.audits.audit import AttackResult, AuditResult, AuditSettings
from datalens_service.audits.membership import measure
from datalens_service.audits.targets import attack_released_model, rehearse
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import audits, leases
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import QUICK, lamps

from .alarm import expect
from .detect_ledger import deployment
from .detect_logs import _printed

_UNITS = 400
_CANARY = 918_273_645
"""A number of members that nothing else has."""


def references_learn_from_no_candidate(_rng: np.random.Generator) -> None:
    """R54: a reference that knows a candidate says nothing about the audited model, and figures come out too low."""
    settings = AuditSettings(references=3, candidates=50, attacks=tuple(MEMBERSHIP))
    for attack in (
        lambda data, train: rehearse(data, train, None, settings),
        lambda data, train: attack_released_model(train(data, 0), data, train, None, settings),
    ):
        candidates, learnt = _noted(attack)
        target, *references = learnt
        expect(len(references) == settings.references, "every reference is trained")
        expect(candidates & target, "some candidates are members")
        expect(candidates - target, "and some are not")
        for reference in references:
            expect(not reference & candidates, "a reference model learns from no candidate")


def what_attacks_found_stays_with_the_owner(_rng: np.random.Generator) -> None:
    """R54: no file of a job that anybody may get, and no line of its log, has a figure of an attack."""
    with deployment() as local:
        dataset = local.upload(lamps())
        _attacked(local.database, dataset.id)
        job = local.submit(QUICK, dataset)
        lines = _printed(local, job.id)
        expect(local.job(job).state is JobState.SUCCEEDED, "a job on attacked records succeeds")
        files = ArtifactStore(local.database, local.folder).list_artifacts(job.id)
        told = [file.name for file in files if _tells(file.path.read_bytes())]
        releasable = {file.name for file in files if file.releasable}
    expect("report.json" in told, "the owner's report says what attacks found")
    expect(not releasable & set(told), "a file that anybody may get has no figure of an attack")
    expect(not _tells(repr(lines).encode()), "nor has the log")


class _Model:
    """Knows nothing."""

    result, evaluations = "classifier", ("predictions",)

    def predict(self, images: np.ndarray) -> np.ndarray:
        return np.full((len(images), 2), 0.5)


def _noted(attack: Callable[[Dataset, Any], AuditResult]) -> tuple[set[bytes], list[set[bytes]]]:
    """Images of all candidates, and those that each model learned from, the audited one first."""
    candidates, learnt = set[bytes](), list[set[bytes]]()
    measure_fit = audit.measure_fit

    def noted(model: Any, split: Split) -> np.ndarray:
        candidates.update(_images(split))
        return measure_fit(model, split)

    def train(data: Dataset, _seed: int) -> _Model:
        learnt.append(_images(data.train))
        return _Model()

    with mock.patch.object(audit, "measure_fit", noted):
        attack(_numbered(), train)
    return candidates, learnt


def _images(split: Split) -> set[bytes]:
    return {image.tobytes() for image in split.images}


def _numbered() -> Dataset:
    """Every image is a number of its own."""
    schema = Schema(channels=1, height=4, width=4, class_names=("a", "b"), num_units=_UNITS)
    train, test = (_split(first, count) for first, count in ((0, _UNITS), (_UNITS, 100)))
    return Dataset(schema, train, test, b"k" * 32)


def _split(first: int, count: int) -> Split:
    numbers = np.arange(first, first + count, dtype=np.uint32)
    images = np.repeat(numbers.view(np.uint8), 4).reshape(count, 4, 4, 1)
    return Split(images, np.arange(count) % 2)


def _attacked(database: Database, dataset_id: str) -> None:
    """A rehearsal of the job's method that has ended."""
    spec = {"method": QUICK["method"], "epsilon": QUICK["epsilon"]}
    request = {"target": {"kind": "rehearsal", "dataset_id": dataset_id, "spec": spec}}
    asked = audits.create(database, dataset_id=dataset_id, request=request, submitted_by="key_test")
    lease = leases.claim(database, asked.job.id, "gate", 600)
    expect(lease is not None, "an audit can be claimed")
    audits.store_result(database, lease, _found())
    leases.finish(database, lease, JobState.SUCCEEDED)


def _found() -> dict[str, Any]:
    scores = np.linspace(0, 1, 60)
    figures = measure(scores, scores, 0.3).model_copy(update={"members": _CANARY})
    attack = AttackResult(attack="loss_threshold", source="Yeom et al. 2018", figures=figures)
    result = AuditResult(result="generator", mu=0.3, units_per_model=50, references=0, attacks=(attack,), classes=())
    return result.model_dump(mode="json")


def _tells(content: bytes) -> bool:
    return any(text.encode() in content for text in (str(_CANARY), f"{_CANARY:,}"))
