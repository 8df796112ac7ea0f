"""A service with a certificate: every PNG and every model that it hands out is signed, whichever process made it."""

import io
import zipfile
from pathlib import Path

import pytest
from api_builders import sign_in, training, work_off
from starlette.testclient import TestClient

from certificates import SignerFiles, issue_signer
from datalens_service.api.deps import Services
from datalens_service.base.settings import Settings
from datalens_service.data.export.content_credentials import read_credentials
from datalens_service.store.jobs.jobs import JobState


@pytest.fixture
def signer(tmp_path: Path) -> SignerFiles:
    return issue_signer(tmp_path / "signer")


@pytest.fixture
def settings(settings: Settings, signer: SignerFiles) -> Settings:
    return settings.model_copy(
        update={"content_credentials_certificate_file": signer.certificate, "content_credentials_key_file": signer.key}
    )


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str) -> str:
    job = client.post("/v1/jobs", json=training(dataset_id, synthetic_images=8, evaluation={"enabled": False})).json()
    assert work_off(services, job["id"]).state is JobState.SUCCEEDED
    return str(job["id"])


def state(png: bytes) -> str | None:
    found = read_credentials(png)
    return None if found is None else found.state


@pytest.mark.parametrize("asked", [{}, {"seed": 3}, {"per_class": 1, "classes": ["1"]}])
def test_images_in_every_download_are_signed(client: TestClient, job_id: str, asked: dict[str, object]) -> None:
    for path in ("synthetic", "dataset"):
        reply = client.get(f"/v1/jobs/{job_id}/{path}", params={"format": "imagefolder", **asked})
        assert reply.status_code == 200, reply.text
        with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
            pictures = [archive.read(name) for name in archive.namelist() if name.endswith(".png")]
        assert len(pictures) > 0
        assert {state(picture) for picture in pictures} == {"valid"}


def test_samples_and_pictures_of_pages_are_signed(client: TestClient, job_id: str) -> None:
    sign_in(client)
    for path in (f"/v1/jobs/{job_id}/samples.png", f"/jobs/{job_id}/images.png?label=0"):
        reply = client.get(path)
        assert (reply.status_code, state(reply.content)) == (200, "valid"), path


def test_the_generator_has_a_manifest_beside_it_which_is_for_anybody(client: TestClient, job_id: str) -> None:
    files = {file["name"]: file for file in client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]}
    manifest = files["generator.safetensors.c2pa"]
    assert (manifest["audience"], manifest["media_type"]) == ("anyone", "application/c2pa")
    signed = client.get(f"/v1/jobs/{job_id}/artifacts/generator.safetensors.c2pa").content
    found = read_credentials(client.get(f"/v1/jobs/{job_id}/generator").content, manifest=signed)
    assert found is not None
    assert (found.state, found.synthetic) == ("valid", True)


def test_an_archive_has_no_manifest_of_a_file_that_it_leaves_out(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/dataset")
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        assert [name for name in archive.namelist() if name.endswith(".c2pa")] == []


def test_no_answer_names_the_files_of_the_signer(client: TestClient, job_id: str, signer: SignerFiles) -> None:
    key = signer.key.read_text().splitlines()[1]
    for file in client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]:
        content = client.get(f"/v1/jobs/{job_id}/artifacts/{file['name']}").content
        assert key.encode() not in content
        assert str(signer.key).encode() not in content
