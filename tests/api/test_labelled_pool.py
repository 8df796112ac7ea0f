"""A pool with private labels, over REST: what is said of it, and that soft labels come along in every format."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.data import read_upload
from datalens_service.data.export import WRITERS
from datalens_service.data.export.png import PUBLIC
from datalens_service.proof import release_verification
from tests.api.test_classifier_job import done, saved
from tests.api.test_public_data import LICENCE, NO_BRACES, halves

__all__ = ["halves"]

TEACHER = {"name": "scattering", "warm_start": {"name": "moments", "subspace_dimensions": 8}, "steps": 2,
           "samples": 200, "dimensions": 20}  # fmt: skip
SPEC = {"method": {"name": "labelled_pool", "classifier": TEACHER}, "epsilon": 2.0, "synthetic_images": 300}


@pytest.fixture
def job(client: TestClient, services: Services, halves: tuple[str, str]) -> dict[str, Any]:
    private, public = halves
    return done(client, services, private, SPEC | {"public_data": public})


def test_a_pool_with_private_labels_is_called_what_it_is(
    client: TestClient, job: dict[str, Any], tmp_path: Path
) -> None:
    card = client.get(f"/v1/jobs/{job['id']}/artifacts/card.json").json()
    assert card["synthetic"] is False
    assert card["public_images"]["verbatim"] is True
    report = client.get(f"/v1/jobs/{job['id']}/report", params={"audience": "releasable"}).json()
    assert (report["synthetic"], report["public_images"]) == (False, True)
    said = json.dumps(report, ensure_ascii=False)
    assert card["public_images"]["sha256"] in said
    assert "open digits" in said
    assert LICENCE.translate(NO_BRACES) in said
    assert card["public_images"]["license"] == LICENCE
    page = client.get(f"/v1/jobs/{job['id']}/report", params={"audience": "releasable", "format": "html"}).text
    assert "Public images with labels learned from private ones" in page
    assert "synthetic images" not in page.lower()
    names = {file["name"] for file in client.get(f"/v1/jobs/{job['id']}/artifacts").json()["items"]}
    assert {"generator.safetensors", "classifier.safetensors", "classifier.onnx", "samples.png"} <= names
    picture = client.get(f"/v1/jobs/{job['id']}/samples.png").content
    assert Image.open(io.BytesIO(picture)).info["Comment"] == PUBLIC
    archive = saved(client, job["links"]["bundle"], tmp_path / "release.zip")
    assert release_verification.verify_path(archive).holds
    with zipfile.ZipFile(saved(client, f"/v1/jobs/{job['id']}/dataset", tmp_path / "images.zip")) as files:
        for end in ("README.md", "NOTICE", "croissant.json", "provenance.json"):
            text = next(files.read(name).decode() for name in files.namelist() if name.endswith(end))
            assert "who wrote them" in text, end


@pytest.mark.parametrize("name", WRITERS)
def test_soft_labels_are_in_every_format(client: TestClient, job: dict[str, Any], name: str, tmp_path: Path) -> None:
    path = tmp_path / f"images.{WRITERS[name].suffix}"
    answer = client.get(f"/v1/jobs/{job['id']}/synthetic", params={"format": name, "synthetic_images": 20})
    assert answer.status_code == 200, answer.text
    path.write_bytes(answer.content)
    soft = SOFT_LABELS[name](path)
    assert soft.shape == (20, 10)
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-4)
    assert len(read_upload(path).train.labels) == 20, "and the file can be read as any other"


def of_npz(path: Path) -> np.ndarray:
    with np.load(path) as arrays:
        assert json.loads(str(arrays["provenance"]))["synthetic"] is False
        return arrays["label_probabilities"]


def of_parquet(path: Path) -> np.ndarray:
    return np.stack(pq.read_table(path)["label_probabilities"].to_pylist())


def of_folders(path: Path) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        head, *rows = archive.read("metadata.csv").decode().splitlines()
        assert {row.partition(",")[0] for row in rows} <= set(archive.namelist())
    assert head.startswith("file_name,label,probability_0,")
    return np.array([[float(share) for share in row.split(",")[2:]] for row in rows])


def of_webdataset(path: Path) -> np.ndarray:
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.name.endswith(".json")]
        return np.array([json.load(archive.extractfile(member))["label_probabilities"] for member in members])


SOFT_LABELS = {"npz": of_npz, "parquet": of_parquet, "imagefolder": of_folders, "webdataset": of_webdataset}
