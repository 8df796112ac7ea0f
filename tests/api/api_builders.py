"""Uploads, and jobs that are further than `queued`."""

import functools
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.audits.audit import AttackResult, AuditResult
from datalens_service.audits.inversion_figures import InversionFigures, ReconstructionErrors
from datalens_service.audits.membership import measure
from datalens_service.base.settings import Settings
from datalens_service.data.export import WRITERS, WrittenImages
from datalens_service.evaluation.metrics import METRICS
from datalens_service.jobs.execute import execute
from datalens_service.models.generators.generator import Generator
from datalens_service.report.build import owner_view, releasable_view
from datalens_service.store.access import keys, webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import audits, jobs, leases, released_models
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.jobs.released_models import CLASSIFIER
from tests.evaluation.conftest import report as finished_report

CONFUSION = {"class_names": ["0", "1"], "counts": [[718, 2], [3, 719_283_645]], "reference": "the owner's test images"}
REHEARSAL = {"target": {"kind": "unprotected", "dataset_id": "ds_any", "passes": 1}, "attacks": ["loss_threshold"]}
"""What an audit was asked for, as its row has it."""
CONFIRMED = {"confirm_classes": "true"}
"""Of the form of an upload: its budget opens at once."""
NUM_RECORDS = 200
NUM_CLASSES = 4
SIDE = 8


@functools.cache
def application() -> FastAPI:
    """One that is never asked: for reading its routes and its description."""
    return create_app(Settings(data_dir=Path("never-opened")))


@functools.cache
def description() -> dict[str, Any]:
    """The description of the API, which takes seconds to make, so no module makes it where it is imported."""
    return application().openapi()


def bearer(client: Any, requested: KeyRequest | str = "test") -> dict[str, str]:
    """The header with a new key of the client's service."""
    _, plain = keys.create(client.app.state.services.database, requested)
    return {"Authorization": f"Bearer {plain}"}


def another_caller(client: TestClient, requested: KeyRequest) -> TestClient:
    """A client of the same service with a key of its own."""
    return TestClient(client.app, base_url="http://service", headers=bearer(client, requested))


def sign_in(client: Any, requested: KeyRequest | str = "visitor") -> str:
    """Make the client a browser that has signed in with a new key; the key."""
    plain = bearer(client, requested)["Authorization"].removeprefix("Bearer ")
    client.headers.pop("Authorization", None)
    client.post("/sign-in", data={"key": plain})
    return plain


def browser(client: Any, requested: KeyRequest | str = "visitor") -> TestClient:
    """A browser that has signed in to the same service with a new key."""
    other = TestClient(client.app, base_url="http://service")
    sign_in(other, requested)
    return other


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "images": rng.integers(0, 256, (NUM_RECORDS, SIDE, SIDE), dtype=np.uint8),
        "labels": np.arange(NUM_RECORDS, dtype=np.int64) % NUM_CLASSES,
    }


def found_by_attacks(members: int) -> dict[str, Any]:
    """The result of an audit with a number that nothing else has; the next one is the number of inverted records."""
    scores = np.linspace(0, 1, 60)
    figures = measure(scores, scores, 0.3).model_copy(update={"members": members})
    attack = AttackResult(attack="loss_threshold", source="Yeom et al. 2018", figures=figures)
    errors = ReconstructionErrors(median=0.07, interval=(0.01, 0.2), lowest=0.01)
    inversion = InversionFigures(
        architecture="mlp", records=members + 1, iterations=1, restarts=1, noise="none", noise_multiplier=None,
        kappa=None, raw=errors, released=None,
    )  # fmt: skip
    result = AuditResult(
        result="generator", mu=0.3, units_per_model=50, references=0, attacks=(attack,), classes=(), inversion=inversion
    )
    return result.model_dump(mode="json")


def npz(**replaced: np.ndarray | None) -> bytes:
    """An NPZ upload; name an array to replace it, or None to leave it out."""
    given = {name: value for name, value in {**arrays(), **replaced}.items() if value is not None}
    return npz_of(**given)


def npz_of(**arrays: np.ndarray) -> bytes:
    """An NPZ file of these arrays alone."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def send_images(client: Any, content: bytes | None = None, **form: Any) -> Any:
    """The answer to an upload whose class names are confirmed, by default of `npz()` with a budget of ε = 10."""
    files, data = {"file": npz() if content is None else content}, {**CONFIRMED, "epsilon": "10", **form}
    return client.post("/v1/datasets", files=files, data=data)


def training(dataset_id: str, **spec: Any) -> dict[str, Any]:
    """The body of a plan or a job, of use or not."""
    wanted = {"method": "moments", "epsilon": 1.0, **spec}
    return {"dataset_id": dataset_id, "spec": wanted, "accept_low_utility": True}


def journal(client: Any, dataset_id: str) -> list[dict[str, Any]]:
    """All entries of a data set's account, followed from the account on."""
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    found: list[dict[str, Any]] = []
    page = {"has_more": True, "next_cursor": 0}
    while page["has_more"]:
        page = client.get(account["links"]["entries"], params={"after": page["next_cursor"]}).json()
        found += page["items"]
    assert (found[-1]["seq"], found[-1]["hash"]) == (account["last_entry"], account["head_hash"])
    return found


def one_of_everything(client: Any, services: Services, dataset_id: str, folder: Path) -> dict[str, str]:
    """A succeeded job with all that hangs on it; ids by their names in paths."""
    hook, _ = webhooks.create(services.database, "default", "https://example.org/hook", ["job.succeeded"])
    job_id = released(client, folder, dataset_id)
    classifier = a_classifier(client, services, dataset_id)
    delivery = webhooks.list_deliveries(services.database, hook.id).items[0]
    key, _ = keys.create(services.database, "second")
    upload = client.post("/v1/uploads", headers={"Upload-Length": "8", "Tus-Resumable": "1.0.0"})
    audit = audits.create(
        services.database, dataset_id=dataset_id, request=REHEARSAL, submitted_by="key_test", attacked_job_id=job_id
    )
    links = f"/v1/releases/{released_models.build_id(job_id)}/links"
    shared = client.post(links, json={"partner": "a clinic"}).json()
    return {
        "audit_id": audit.job.id,
        "dataset_id": dataset_id,
        "tenant_id": "default",
        "upload_id": upload.json()["id"],
        "job_id": job_id,
        "key_id": key.id,
        "webhook_id": hook.id,
        "delivery_id": delivery.id,
        "generator_id": released_models.build_id(job_id),
        "release_id": released_models.build_id(job_id),
        "link_id": shared["link"]["id"],
        "secret": shared["url"].rpartition("/")[2],
        "classifier_id": released_models.build_id(classifier, released_models.CLASSIFIER),
    }


def claimed(services: Services, job_id: str) -> Lease:
    """The lease of a worker that takes the job."""
    lease = leases.claim(services.database, job_id, "test", 600)
    assert lease is not None
    return lease


def work_off(services: Services, job_id: str) -> jobs.Job:
    """Take a job and do it here."""
    return execute(services.database, services.artifacts, services.settings, claimed(services, job_id))


def released(client: Any, folder: Path, dataset_id: str, card: dict[str, Any] | None = None, **spec: Any) -> str:
    """Id of a submitted job that has succeeded."""
    job_id = str(client.post("/v1/jobs", json=training(dataset_id, **spec)).json()["id"])
    succeed(client.app.state.services, job_id, folder, card)
    return job_id


def succeed(services: Services, job_id: str, folder: Path, card: dict[str, Any] | None = None) -> None:
    """What a worker leaves behind: the files of a succeeded job."""
    lease = claimed(services, job_id)
    leave_files(services, lease, folder, card)
    leases.finish(services.database, lease, JobState.SUCCEEDED)


def leave_files(services: Services, lease: Lease, folder: Path, card: dict[str, Any] | None = None) -> None:
    """The files of a generator and of its reports."""
    job_id = lease.job_id
    job = jobs.get(services.database, job_id)
    schema = datasets.get(services.database, job.dataset_id).schema
    generator = gaussian(schema).with_class_shares(job.spec.get("class_shares"))
    stock = folder / "synthetic.npz"
    n = job.spec["synthetic_images"]
    WRITERS["npz"].write(stock, WrittenImages(*generator.sample(n), schema, {"job": job_id}))
    generator.save(folder / "generator.safetensors")
    files = {
        "synthetic.npz": (stock, True, "application/octet-stream"),
        "generator.safetensors": (folder / "generator.safetensors", True, "application/octet-stream"),
        "samples.png": (b"\x89PNG grid", True, "image/png"),
        "privacy.json": (b'{"format": "datalens-bundle/2"}', True, "application/json"),
        "account-proof.json": (b'{"format": "datalens-bundle/1"}', False, "application/json"),
        "card.json": (json.dumps(card or {"job": job_id}).encode(), True, "application/json"),
        "report.json": (report("owner"), False, "application/json"),
        "report.html": (b"<p>owner</p>", False, "text/html"),
        "report-releasable.json": (report("releasable"), True, "application/json"),
        "report-releasable.html": (b"<p>releasable</p>", True, "text/html"),
    }
    for name, (content, releasable, media_type) in files.items():
        services.artifacts.put(lease, name, content, releasable=releasable, media_type=media_type)


def a_classifier(client: Any, services: Services, dataset_id: str) -> str:
    """A job that made a classifier; its id."""
    method = {"name": "dp_sgd", "architecture": "linear", "steps": 1}
    made = client.post("/v1/jobs", json=training(dataset_id, method=method))
    assert made.status_code == 202, made.text
    succeed_classifier(services, made.json()["id"])
    return str(made.json()["id"])


def succeed_classifier(services: Services, job_id: str) -> None:
    """What a worker leaves behind of a classifier."""
    owner = {**json.loads(report("owner")), "confusion": CONFUSION, "measures": []}
    files = {
        "classifier.safetensors": (b"weights", True, "application/octet-stream"),
        "classifier.onnx": (b"graph", True, "application/octet-stream"),
        "README.md": (b"# A private classifier", True, "text/markdown"),
        "card.json": (json.dumps({"job": job_id}).encode(), True, "application/json"),
        "privacy.json": (b'{"format": "datalens-bundle/2"}', True, "application/json"),
        "report-releasable.json": (report("releasable"), True, "application/json"),
        "report.json": (json.dumps(owner).encode(), False, "application/json"),
    }
    lease = claimed(services, job_id)
    for name, (content, releasable, media_type) in files.items():
        services.artifacts.put(lease, name, content, releasable=releasable, media_type=media_type)
    leases.mark_released(services.database, lease, CLASSIFIER)
    leases.finish(services.database, lease, JobState.SUCCEEDED)


@functools.cache
def report(view: str) -> bytes:
    """A complete report of some job."""
    make = {"owner": owner_view, "releasable": releasable_view}[view]
    return json.dumps(make(finished_report())).encode()


def report_of(view: str, values: Mapping[str, float]) -> bytes:
    """The same, whose owner's copy has these figures by the names of their metrics."""
    measures = [
        {
            "name": name, "value": value, "unit": METRICS[name].unit, "audience": "owner", "spread": None,
            "ceiling": None, "title": METRICS[name].title, "meaning": METRICS[name].meaning,
        }
        for name, value in values.items()
    ]  # fmt: skip
    return json.dumps({**json.loads(report(view)), "measures": measures if view == "owner" else []}).encode()


def gaussian(schema: Any) -> Generator:
    """A generator that needs no torch."""
    rng = np.random.default_rng(1)
    rank = 3
    tensors = {
        "basis": rng.normal(size=(schema.dimensions, rank)),
        "means": rng.normal(size=(schema.num_classes, rank)),
        "factors": rng.normal(size=(schema.num_classes, rank, rank)),
    }
    return Generator("gaussian", schema, {}, {name: value.astype(np.float32) for name, value in tensors.items()})


def routes(within: Any) -> Iterator[APIRoute]:
    """All of them, of included routers as well."""
    for route in within.routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from routes(route.original_router)
