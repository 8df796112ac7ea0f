"""A hospital's folder, from its files to a release: the patient is the unit, and no patient is named in any byte."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli.service import RunningService, random_numbers_of
from datalens_service.client import Client
from tests.data.builders import encoded
from tests.data.dicom_files import dicom

PATIENTS, SCANS, SIDE = 200, 5, 12
SPEC = {"method": {"name": "moments", "subspace_dimensions": 8}, "epsilon": 2.0, "synthetic_images": 200}
EVALUATION = {"epochs": 1, "synthetic_images": 100, "seeds": 1}


def patient(number: int) -> str:
    return f"MRN-{7_000 + 13 * number:05}"


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of patients with three 16-bit PNG and two DICOM files each, and a table beside them."""
    folder = tmp_path_factory.mktemp("hospital")
    rng = random_numbers_of(__name__)
    rows = ["file_name,label,patient"]
    for number in range(PATIENTS):
        (folder / patient(number)).mkdir()
        for scan in range(SCANS):
            pixels = rng.integers(0, 4000, (SIDE, SIDE), dtype=np.uint16)
            name = f"{patient(number)}/scan_{scan}.{'png' if scan < 3 else 'dcm'}"
            (folder / name).write_bytes(
                encoded(Image.fromarray(pixels)) if scan < 3 else dicom(pixels, PatientID=patient(number))
            )
            rows.append(f"{name},{'pneumonia' if number % 2 else 'normal'},{patient(number)}")
    (folder / "metadata.csv").write_text("\n".join(rows))
    return folder


def contents(data: bytes) -> Iterator[bytes]:
    """A file, and all that is packed in it."""
    yield data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from contents(archive.read(name))


def named(data: bytes) -> bool:
    """Whether something in a file names a patient; all of them are called MRN-, and their DICOM files Doe^Jane."""
    return any(word in content for content in contents(data) for word in (b"MRN-", b"Doe^Jane", b"scan_"))


def test_no_release_names_a_patient(
    hospital: Path, service: RunningService, tmp_path: Path, datalens_json: Callable[..., Any]
) -> None:
    prepared = datalens_json("prepare", hospital, "--out", "h.npz", "--size", 12, "--window", 0, 4000)
    assert (prepared["images"], prepared["classes"]) == (PATIENTS * SCANS, "normal, pneumonia")
    assert prepared["patients"] == f"{PATIENTS}, each with at most {SCANS} images"
    assert not named(Path("h.npz").read_bytes())
    with Client(service.url, service.api_key) as client:
        waiting = client.upload_dataset(Path("h.npz"), epsilon=4.0, records_per_unit=SCANS)
        assert waiting.review is not None
        assert [item.name for item in waiting.review.classes] == ["normal", "pneumonia"]
        dataset = client.confirm_dataset(waiting.id)
        assert dataset.image_schema is not None
        assert (dataset.image_schema.unit, dataset.image_schema.num_units) == ("patient", PATIENTS)
        job = client.wait(client.submit(dataset.id, {**SPEC, "evaluation": EVALUATION}), interval=0.2)
        assert job.state == "succeeded", job.error
        release = client.download_bundle(job.id, tmp_path / "release.zip").read_bytes()
        assert b"patient" in b"".join(contents(release))
        for form in ("npz", "parquet", "imagefolder", "webdataset"):
            client.download(job.id, tmp_path / f"images-{form}", format=form)
        told = [client.report(job.id, audience="releasable"), client.get_job(job.id).model_dump(mode="json")]
    for path in (tmp_path / "release.zip", *tmp_path.glob("images-*")):
        assert not named(path.read_bytes()), path
    assert not named(json.dumps(told).encode())
    assert not named(service.log.read_bytes())


def test_the_folder_is_read_alike_without_a_service(hospital: Path, datalens_json: Callable[..., Any]) -> None:
    settings = ["--method", "moments", "--set", "subspace_dimensions=8", "--synthetic-images", 100, "--no-evaluation"]
    choices = ["--prepare-size", 12, "--prepare-window", 0, 4000, "--records-per-unit", SCANS, "--confirm-classes"]
    outcome = datalens_json("train", "--data", hospital, "--epsilon", 2, "--out", "out", *choices, *settings)
    assert outcome["state"] == "succeeded"
    released = [Path(path) for name, path in outcome["files"].items() if outcome["audiences"][name] == "anyone"]
    assert len(released) > 5
    assert not [path.name for path in released if named(path.read_bytes())]
    schema = json.loads(Path(outcome["files"]["card.json"]).read_text())["privacy"]
    assert (schema["unit"], schema["num_units"], schema["records_per_unit"]) == ("patient", PATIENTS, SCANS)
    privacy = json.loads(Path(outcome["files"]["report.json"]).read_text())["privacy"]
    assert f"At most {SCANS} training images belong to one patient" in " ".join(privacy["scope"]["public"])
    assert {release["records_per_unit"] for release in privacy["mechanisms"]} == {SCANS}
    assert datalens_json("verify", outcome["files"]["privacy.json"])["holds"]


def test_the_sieve_would_see_a_name() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.json", json.dumps({"class_names": [patient(3)]}))
    assert named(buffer.getvalue())
    assert not named(b"normal, pneumonia")
