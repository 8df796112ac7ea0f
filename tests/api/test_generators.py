"""Generators as objects: those of jobs, and those that are brought along."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import NUM_CLASSES, SIDE, gaussian, released
from safetensors.numpy import save
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.data.dataset import Schema
from datalens_service.store.jobs import released_models

SCHEMA = Schema(
    channels=1, height=SIDE, width=SIDE, class_names=tuple(str(name) for name in range(NUM_CLASSES)), num_units=200
)


@pytest.fixture
def made_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    job_id = released(client, tmp_path, dataset_id)
    return released_models.build_id(job_id)


def exported(tmp_path: Path) -> bytes:
    path = tmp_path / "from-elsewhere.safetensors"
    gaussian(SCHEMA).save(path)
    return path.read_bytes()


def brought(client: TestClient, content: bytes, **fields: str) -> Any:
    return client.post("/v1/generators", files={"file": content}, data=fields)


def images(reply: Any) -> np.ndarray:
    assert reply.status_code == 200, reply.text
    with np.load(io.BytesIO(reply.content)) as found:
        return np.asarray(found["train_images"])


def test_a_job_leaves_a_generator(client: TestClient, made_id: str) -> None:
    [item] = client.get("/v1/generators").json()["items"]
    shown = client.get(item["links"]["self"]).json()
    assert (item["id"], item["covered_by_ledger"], item["card"]) == (made_id, True, None)
    assert shown["card"]["job"] == shown["job_id"] == item["job_id"]
    more = images(client.get(item["links"]["samples"], params={"synthetic_images": 7, "seed": 3, "format": "npz"}))
    assert len(more) == 7
    same = client.get(
        f"/v1/jobs/{item['job_id']}/synthetic", params={"synthetic_images": 7, "seed": 3, "format": "npz"}
    )
    np.testing.assert_array_equal(more, images(same))
    file = client.get(item["links"]["file"])
    assert file.content == client.get(f"/v1/jobs/{item['job_id']}/generator").content


def test_a_generator_that_was_taken_along_draws_the_same(client: TestClient, made_id: str) -> None:
    content = client.get(f"/v1/generators/{made_id}/file").content
    reply = brought(client, content, name="from elsewhere")
    assert reply.status_code == 201, reply.text
    shown = reply.json()
    assert (shown["name"], shown["job_id"], shown["covered_by_ledger"]) == ("from elsewhere", None, False)
    assert "no account here covers it" in shown["card"]["origin"]
    assert client.get(shown["links"]["self"]).json() == shown
    assert client.get(shown["links"]["file"]).content == content
    query = {"synthetic_images": 5, "seed": 1, "format": "npz"}
    np.testing.assert_array_equal(
        images(client.get(shown["links"]["samples"], params=query)),
        images(client.get(f"/v1/generators/{made_id}/samples", params=query)),
    )
    listed = client.get("/v1/generators").json()["items"]
    assert [item["covered_by_ledger"] for item in listed] == [False, True]


def test_an_imported_generator_can_be_forgotten_and_a_release_not(
    client: TestClient, services: Services, tmp_path: Path, made_id: str
) -> None:
    shown = brought(client, exported(tmp_path)).json()
    assert client.delete(shown["links"]["self"]).status_code == 204
    assert client.get(shown["links"]["self"]).status_code == 404
    assert not list((services.settings.data_dir / "generators").iterdir())
    refused = client.delete(f"/v1/generators/{made_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "state-conflict")


def test_what_is_no_generator_is_refused_and_leaves_nothing(client: TestClient, services: Services) -> None:
    for content in [
        b"",
        b"\x80\x04\x95 pickle",
        b"\xff" * 64,
        save({"x": np.zeros(1, dtype=np.float32)}),
        save({"x": np.zeros(1, dtype=np.float32)}, {"kind": "gaussian"}),
        save({"x": np.zeros(1, dtype=np.float32)}, {"kind": "gaussian", "schema": "{}", "settings": "{}"}),
        save(
            {"basis": np.zeros((2, 2), dtype=np.float32)},
            {"kind": "gaussian", "schema": SCHEMA.model_dump_json(), "settings": "{}"},
        ),
    ]:
        reply = brought(client, content)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), content
        assert client.get("/v1/generators").json()["items"] == []
        assert not list((services.settings.data_dir / "incoming").iterdir())
