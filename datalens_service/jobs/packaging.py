"""The files a job leaves: what anybody may get, and what only the owner may.

They are stored twice: as soon as training has ended, so that nobody waits for figures to get images; and once the
figures are there, those files again that state them.
"""

import json
import math
from contextlib import suppress
from functools import partial
from typing import Any

from datalens_service.base.errors import JobStopped
from datalens_service.base.progress import Phase
from datalens_service.base.signatures import SigningKey
from datalens_service.jobs.release_files import (
    DRAWN,
    JobFile,
    ReleaseContents,
    files_with_card,
    released_files,
    report_pictures,
)
from datalens_service.proof.job_proof import ACCOUNT_FILE, PROOF_FILE, JobProof, Proof
from datalens_service.report.build import owner_view, releasable_view
from datalens_service.report.card import card
from datalens_service.report.evidence import evidence_page
from datalens_service.report.html import page
from datalens_service.report.registry import registry_entry
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.leases import Lease
from datalens_service.training import Observer


def package(artifacts: ArtifactStore, lease: Lease, contents: ReleaseContents, observe: Observer) -> None:
    """Store all files of a job under its lease; repeatable.

    Paid for as they are, they are stored also if somebody asks the job to stop meanwhile.
    """
    files = released_files(contents)
    drawn = [file for file in files if file.name in DRAWN]
    _store(artifacts, lease, Phase.DRAWING, drawn, observe)
    others = [file for file in files if file not in drawn]
    _store(artifacts, lease, Phase.PACKAGING, [*others, *_stated(contents)], observe)


def restate(artifacts: ArtifactStore, lease: Lease, contents: ReleaseContents, observe: Observer) -> None:
    """Replace the files of a job that state its figures, now that it was evaluated; arguments as `package`."""
    files = _stated(contents)
    if card(contents.report)["measures"]:
        files = [*files_with_card(contents), *files]
    _store(artifacts, lease, Phase.REPORTING, files, observe)


def _store(artifacts: ArtifactStore, lease: Lease, phase: Phase, files: list[JobFile], observe: Observer) -> None:
    done, whole = 0, sum(file.length for file in files)
    for file in files:
        _observe_paid(observe, phase, done, whole)
        content = file.make(partial(_tell_paid, observe, phase, done, file.length, whole))
        artifacts.put(lease, file.name, content, releasable=file.releasable, media_type=file.media_type)
        done += file.length
    _observe_paid(observe, phase, whole, whole)


def _tell_paid(observe: Observer, phase: Phase, done: int, length: int, whole: int, share: float) -> None:
    _observe_paid(observe, phase, done + math.floor(share * length), whole)


def _observe_paid(observe: Observer, phase: Phase, value: int, maximum: int) -> None:
    """Observe a step behind the last release: a cancel request comes too late to take the files away."""
    with suppress(JobStopped):
        observe(phase, value, maximum)


def _stated(contents: ReleaseContents) -> list[JobFile]:
    """Sign the files that state cost and figures."""
    report, proof, key = contents.report, contents.proof, contents.key
    releasable, owners = key.sign(releasable_view(report)), key.sign(owner_view(report))
    pictures = report_pictures(contents)
    return [
        JobFile("card.json", "application/json", True, lambda _tell: _json(card(report))),
        JobFile(PROOF_FILE, "application/json", True, lambda _tell: _signed(key, JobProof.from_account_proof(proof))),
        JobFile("report-releasable.json", "application/json", True, lambda _tell: _json(releasable)),
        JobFile("report-releasable.html", "text/html", True, lambda _tell: page(releasable, pictures).encode()),
        JobFile(ACCOUNT_FILE, "application/json", False, lambda _tell: _signed(key, proof)),
        JobFile("evidence-releasable.html", "text/html", True, lambda _tell: evidence_page(releasable).encode()),
        JobFile("registry.yaml", "application/yaml", True, lambda _tell: registry_entry(releasable).encode()),
        JobFile("evidence.html", "text/html", False, lambda _tell: evidence_page(owners).encode()),
        JobFile("report.json", "application/json", False, lambda _tell: _json(owners)),
        JobFile("report.html", "text/html", False, lambda _tell: page(owners, pictures).encode()),
    ]


def _signed(key: SigningKey, proof: Proof) -> bytes:
    return _json(key.sign(proof.model_dump(mode="json")))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode()
