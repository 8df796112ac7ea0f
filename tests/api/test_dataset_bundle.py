"""The data set as a zip that is ready to be published: complete, repeatable, nothing for the owner alone in it."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from api_builders import released, report
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.data.export import WRITERS
from datalens_service.store.schema.tables import ArtifactRow
from example_proof import EXAMPLE_PROOF


@pytest.fixture
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    return released(client, tmp_path, dataset_id, synthetic_images=40, card=EXAMPLE_PROOF["card"])


def opened(content: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(content))


def test_every_format_comes_with_everything(client: TestClient, job_id: str) -> None:
    for kind in WRITERS:
        reply = client.get(f"/v1/jobs/{job_id}/dataset", params={"format": kind, "license": "CC0-1.0"})
        assert reply.status_code == 200, reply.text
        assert reply.headers["Content-Type"] == "application/zip"
        names = set(opened(reply.content).namelist())
        assert {"README.md", "croissant.json", "datasheet.md", "privacy.json", "SHA256SUMS", "report.html"} < names
        again = client.get(f"/v1/jobs/{job_id}/dataset", params={"format": kind, "license": "CC0-1.0"})
        assert again.headers["ETag"] == reply.headers["ETag"]


def test_what_is_for_the_owner_stays_out(client: TestClient, job_id: str) -> None:
    found = opened(client.get(f"/v1/jobs/{job_id}/dataset").content)
    contents = {name: found.read(name) for name in found.namelist()}
    assert contents["report.json"] == report("releasable")
    assert report("owner") not in contents.values()
    assert b"<p>owner</p>" not in contents.values()
    assert json.loads(contents["privacy.json"])["format"] == "datalens-bundle/2"
    assert "account-proof.json" not in contents
    assert "generator.safetensors" not in contents


def test_an_archive_without_a_proof_is_not_made(client: TestClient, services: Services, job_id: str) -> None:
    """A card under the name of the proof, as earlier versions packed it, is worse than none."""
    with services.database.transaction() as session:
        chosen = (ArtifactRow.job_id == job_id, ArtifactRow.name == "privacy.json")
        session.execute(update(ArtifactRow).where(*chosen).values(releasable=False))
    reply = client.get(f"/v1/jobs/{job_id}/dataset")
    assert (reply.status_code, reply.json()["code"]) == (404, "not-found")


def test_title_and_number(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/dataset", params={"synthetic_images": 10, "title": "Ten digits"})
    found = opened(reply.content)
    assert "# Ten digits" in found.read("README.md").decode()
    assert "10 synthetic images" in json.loads(found.read("croissant.json"))["description"]


def test_classes_that_were_selected_are_named(client: TestClient, job_id: str) -> None:
    chosen = {"per_class": 3, "classes": ["1", "0"]}
    found = opened(client.get(f"/v1/jobs/{job_id}/dataset", params=chosen).content)
    sheet = found.read("datasheet.md").decode()
    assert "6 synthetic images" in sheet
    assert "Only these classes were drawn, in turn: 1, 0." in sheet
    assert (
        "only these classes"
        not in opened(client.get(f"/v1/jobs/{job_id}/dataset").content).read("datasheet.md").decode()
    )


def test_bad_requests(client: TestClient, job_id: str) -> None:
    for params in [{"license": "WTFPL"}, {"format": "zip"}, {"synthetic_images": 0}, {"title": "x" * 201}]:
        reply = client.get(f"/v1/jobs/{job_id}/dataset", params=params)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), params
