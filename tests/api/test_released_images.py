"""Synthetic images are found by the hash of their pixels: those that jobs packed, and never a private one."""

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from api_builders import another_caller, npz, send_images, training, work_off
from sqlalchemy import text
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.data.export.pixel_hashes import PIXEL_HASHES, hash_pixels, parse_hashes
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs.jobs import JobState


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str) -> str:
    job = client.post("/v1/jobs", json=training(dataset_id, synthetic_images=8, evaluation={"enabled": False})).json()
    assert work_off(services, job["id"]).state is JobState.SUCCEEDED
    return str(job["id"])


def images(client: TestClient, job_id: str, **params: Any) -> np.ndarray:
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "npz", **params})
    assert reply.status_code == 200, reply.text
    with np.load(io.BytesIO(reply.content)) as arrays:
        return arrays["train_images"]


def find(client: TestClient, image: np.ndarray) -> Any:
    reply = client.get("/v1/released-images", params={"pixel_hash": hash_pixels(image[..., None])})
    assert reply.status_code == 200, reply.text
    return reply.json()["items"]


def test_each_packed_image_leads_to_its_job(client: TestClient, job_id: str) -> None:
    released_at = client.get(f"/v1/jobs/{job_id}").json()["released_at"]
    for image in images(client, job_id):
        (origin,) = find(client, image)
        assert (origin["job_id"], origin["released_at"]) == (job_id, released_at)
    assert client.get(origin["links"]["job"]).json()["id"] == job_id


def test_no_private_image_is_known(client: TestClient, services: Services, job_id: str) -> None:
    with np.load(io.BytesIO(npz())) as arrays:
        private = arrays["images"]
    assert [find(client, image) for image in private[:40]] == [[]] * 40
    with services.database.connection() as connection:
        known = set(connection.scalars(text("SELECT pixel_hash FROM released_images")))
    assert known == {bytes.fromhex(hash_pixels(image[..., None])) for image in images(client, job_id)}


@pytest.mark.parametrize("wrong", ["0" * 63, "G" * 64, "A" * 64, ""])
def test_what_is_no_hash_is_refused(client: TestClient, wrong: str) -> None:
    reply = client.get("/v1/released-images", params={"pixel_hash": wrong})
    assert reply.json()["code"] == "invalid-input"


def test_a_consumer_may_ask_and_another_tenant_learns_nothing(
    client: TestClient, services: Services, job_id: str
) -> None:
    image = images(client, job_id)[0]
    partner = another_caller(client, KeyRequest("partner", role=Role.CONSUMER))
    assert [origin["job_id"] for origin in find(partner, image)] == [job_id]
    other = tenants.create(services.database, "other")
    assert find(another_caller(client, KeyRequest("stranger", tenant_id=other.id)), image) == []


@pytest.mark.parametrize("asked", [{}, {"format": "imagefolder"}, {"format": "npz"}, {"seed": 5}, {"per_class": 1}])
def test_an_archive_lists_exactly_its_own_images(client: TestClient, job_id: str, asked: dict[str, Any]) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/dataset", params=asked)
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        listed = archive.read(PIXEL_HASHES).decode()
        sums = archive.read("SHA256SUMS").decode()
    same = {name: value for name, value in asked.items() if name != "format"}
    assert parse_hashes(listed) == {hash_pixels(image[..., None]) for image in images(client, job_id, **same)}
    assert f"  {PIXEL_HASHES}\n" in sums


def test_a_job_that_ran_before_has_no_list_and_its_archive_none(
    client: TestClient, services: Services, job_id: str
) -> None:
    with services.database.transaction() as session:
        session.execute(text("DELETE FROM artifacts WHERE name = :name"), {"name": PIXEL_HASHES})
    reply = client.get(f"/v1/jobs/{job_id}/dataset", params={"format": "npz"})
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        assert PIXEL_HASHES not in archive.namelist()


def test_labels_of_public_images_leave_no_hash_of_them(client: TestClient, services: Services) -> None:
    rng = np.random.default_rng(8)
    public = io.BytesIO()
    np.savez(public, train_images=rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), train_labels=np.zeros(40, int))
    private = send_images(client).json()["id"]
    pool = send_images(client, public.getvalue(), public_records="true").json()["id"]
    body = training(private, method="labelled_pool", synthetic_images=8, evaluation={"enabled": False})
    body["spec"]["public_data"] = pool
    reply = client.post("/v1/jobs", json=body)
    assert reply.status_code == 202, reply.text
    assert work_off(services, reply.json()["id"]).state is JobState.SUCCEEDED
    with services.database.connection() as connection:
        assert connection.scalar(text("SELECT count(*) FROM released_images")) == 0
