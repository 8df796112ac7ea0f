"""Whatever audit a page recommends is accepted, in every state that a job and its dataset may be in."""

import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import npz_of, released, send_images, sign_in, succeed_classifier, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.audits.audit import FEWEST_UNITS
from datalens_service.audits.targets import FEWEST_TEST_IMAGES
from datalens_service.services.audit_advice import advise_on_job
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import jobs

MOMENTS: dict[str, Any] = {"method": "moments"}
DP_SGD: dict[str, Any] = {"method": {"name": "dp_sgd", "architecture": "linear", "steps": 10}}


def uploaded(client: TestClient, train: int, test: int, **form: Any) -> str:
    rng = np.random.default_rng(train + test)

    def images(count: int) -> np.ndarray:
        return rng.integers(0, 256, (count, 8, 8), dtype=np.uint8)

    arrays = {"train_images": images(train), "train_labels": np.arange(train) % 4}
    if test:
        arrays |= {"test_images": images(test), "test_labels": np.arange(test) % 4}
    reply = send_images(client, npz_of(**arrays), **form)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def section(client: TestClient, path: str) -> str:
    page = client.get(path)
    assert page.status_code == 200, page.text
    return page.text.partition('<section aria-labelledby="attacks">')[2].partition("</section>")[0]


def recommended(shown: str) -> tuple[dict[str, Any] | None, str]:
    """What the button of a page sends, and the command beside it."""
    button = re.search(r'data-send="POST /v1/audits" data-adds="([^"]*)"', shown)
    command = re.search(r"<code>(datalens [^<]*)</code>", shown)
    return button and json.loads(html.unescape(button[1])), html.unescape(command[1]) if command else ""


def names_the_same(command: str, body: dict[str, Any]) -> bool:
    """Whether a command line asks for what the button asks for."""
    target = body["target"]
    where = ["--job", target["job_id"]] if target["kind"] == "released" else [target["dataset_id"], "--unprotected"]
    return shlex.split(command)[3:] == [*where, "--attack", *body["attacks"]]


@pytest.mark.parametrize(
    ("train", "test", "spec", "kind"),
    [
        (FEWEST_UNITS, FEWEST_TEST_IMAGES, MOMENTS, "released"),
        (200, FEWEST_TEST_IMAGES, MOMENTS, "released"),
        (FEWEST_UNITS, FEWEST_TEST_IMAGES - 1, MOMENTS, "rehearsal"),
        (FEWEST_UNITS, 0, MOMENTS, "rehearsal"),
        (FEWEST_UNITS - 1, 0, MOMENTS, None),
        (FEWEST_UNITS - 1, FEWEST_TEST_IMAGES - 1, MOMENTS, None),
        (FEWEST_UNITS, 0, DP_SGD, "rehearsal"),
        (200, 0, DP_SGD, "released"),
    ],
)
def test_what_the_page_of_a_job_recommends_is_accepted(
    client: TestClient, services: Services, tmp_path: Path, train: int, test: int, spec: dict[str, Any], kind: str
) -> None:
    dataset_id = uploaded(client, train, test)
    if spec is DP_SGD:
        job = client.post("/v1/jobs", json=training(dataset_id, **spec))
        assert job.status_code == 202, job.text
        job_id = job.json()["id"]
        succeed_classifier(services, job_id)
    else:
        job_id = released(client, tmp_path, dataset_id, **spec)
    caller = dict(client.headers)
    sign_in(client)
    shown = section(client, f"/jobs/{job_id}")
    body, command = recommended(shown)
    client.headers.update(caller)
    usual = client.post(
        "/v1/audits", json={"target": {"kind": "released", "job_id": job_id}, "attacks": ["loss_threshold"]}
    )
    assert (usual.status_code == 422) == ("A released model is audited" in shown)
    if kind is None:
        assert (body, command) == (None, "")
        return
    assert body is not None
    assert body["target"]["kind"] == kind
    assert kind == "rehearsal" or names_the_same(command, body)
    assert client.post("/v1/audits", json=body).status_code == 202
    assert recommended(section(client, f"/jobs/{job_id}")) == (body, ""), "beside what was tried, the button alone"


@pytest.mark.parametrize(("train", "possible"), [(FEWEST_UNITS, True), (FEWEST_UNITS - 1, False)])
def test_what_the_page_of_a_dataset_recommends_is_accepted(client: TestClient, train: int, possible: bool) -> None:
    dataset_id = uploaded(client, train, 0)
    caller = dict(client.headers)
    sign_in(client)
    shown = section(client, f"/datasets/{dataset_id}")
    body, command = recommended(shown)
    assert (body is not None) == possible == (f"it needs {FEWEST_UNITS} units" not in shown)
    client.headers.update(caller)
    if body is None:
        body = {"target": {"kind": "unprotected", "dataset_id": dataset_id}, "attacks": ["loss_threshold"]}
        assert command == ""
    else:
        assert names_the_same(command, body)
    assert (client.post("/v1/audits", json=body).status_code == 202) == possible


def test_nothing_is_recommended_of_a_deleted_dataset(client: TestClient, tmp_path: Path) -> None:
    dataset_id = uploaded(client, FEWEST_UNITS, FEWEST_TEST_IMAGES)
    job_id = released(client, tmp_path, dataset_id)
    assert client.delete(f"/v1/datasets/{dataset_id}").status_code in (200, 204)
    sign_in(client)
    shown = section(client, f"/jobs/{job_id}")
    assert recommended(shown) == (None, "")
    assert "The data set was deleted" in shown
    assert "What attacks found" not in client.get(f"/datasets/{dataset_id}").text


def test_nothing_is_recommended_to_whom_may_not_ask(client: TestClient, tmp_path: Path) -> None:
    dataset_id = uploaded(client, FEWEST_UNITS, FEWEST_TEST_IMAGES)
    job_id = released(client, tmp_path, dataset_id)
    sign_in(client, KeyRequest("reader", role=Role.OWNER, scopes=["reports:read", "jobs:read", "datasets:read"]))
    shown = section(client, f"/jobs/{job_id}")
    assert "What attacks found" in shown
    assert recommended(shown) == (None, "")


def test_no_page_plans_sampled_batches(client: TestClient, services: Services, tmp_path: Path) -> None:
    dataset_id = uploaded(client, FEWEST_UNITS, 0)
    job = jobs.get(services.database, released(client, tmp_path, dataset_id))
    sampled = replace(job, price={**job.price, "slack": 1})
    offers = [advise_on_job(services.database, job.tenant_id, one).proposal for one in (job, sampled)]
    assert [offer and offer.request.target.kind for offer in offers] == ["rehearsal", None]
