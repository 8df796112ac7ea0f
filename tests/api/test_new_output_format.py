"""An output format is one module: nothing of it stands anywhere else."""

import importlib
import json
import zipfile
from pathlib import Path
from typing import Any, get_args

import pytest
from api_builders import succeed, training
from starlette.testclient import TestClient

from api.deps import Services
from datalens_service.cli.commands.downloads import FileFormat
from datalens_service.client import Format
from datalens_service.data.export import WRITERS
from datalens_service.services import synthetic_files
from datalens_service.store.access import keys
from example_proof import EXAMPLE_PROOF
from tests.extensions.drop_in import drop_in

SOURCE = '''
"""Raw pixels behind a line of JSON."""

import json

from datalens_service.data.export.writer import provenance
from datalens_service.data.export.writer import Writer


def write(path, released):
    header = {"shape": released.images.shape, "provenance": json.loads(provenance(released.card))}
    path.write_bytes(json.dumps(header).encode() + b"\\n" + released.images.tobytes())


WRITER = Writer("raw", "Raw pixels", "bin", "application/x-raw-pixels", write)
'''


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file, and its line in the registry."""
    writer = drop_in(monkeypatch, tmp_path, "datalens_service.data.export", SOURCE).WRITER
    monkeypatch.setitem(WRITERS, writer.name, writer)
    # The program that writes files would read the registry without it.
    monkeypatch.setattr(synthetic_files, "run_program", run_here)


def run_here(module: str, *arguments: object, seconds: int) -> None:
    assert importlib.import_module(module).main([*map(str, arguments)]) == 0


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> str:
    submitted: str = client.post("/v1/jobs", json=training(dataset_id, synthetic_images=20)).json()["id"]
    succeed(services, submitted, tmp_path, EXAMPLE_PROOF["card"])
    return submitted


def downloaded(client: TestClient, path: str, **params: Any) -> Any:
    reply = client.get(path, params={"format": "raw", **params})
    assert reply.status_code == 200, reply.text
    return reply


def test_an_unknown_format_is_refused_by_name(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "raw"})
    assert reply.status_code == 422
    assert "npz, parquet, imagefolder, webdataset" in reply.text


@pytest.mark.usefixtures("added")
def test_one_file_makes_a_format_that_can_be_downloaded(client: TestClient, job_id: str) -> None:
    reply = downloaded(client, f"/v1/jobs/{job_id}/synthetic", n=3)
    assert reply.headers["content-type"] == "application/x-raw-pixels"
    assert reply.headers["content-disposition"] == f'attachment; filename="{job_id}-synthetic.bin"'
    header, _, pixels = reply.content.partition(b"\n")
    assert json.loads(header)["shape"] == [3, 8, 8, 1]
    assert json.loads(header)["provenance"]["synthetic"] is True
    assert len(pixels) == 3 * 8 * 8


@pytest.mark.usefixtures("added")
def test_it_has_a_place_in_release_archives(client: TestClient, job_id: str, tmp_path: Path) -> None:
    (tmp_path / "zip").write_bytes(downloaded(client, f"/v1/jobs/{job_id}/dataset").content)
    with zipfile.ZipFile(tmp_path / "zip") as archive:
        assert "data/synthetic.bin" in archive.namelist()
        distribution = json.loads(archive.read("croissant.json"))["distribution"]
    assert distribution[0]["encodingFormat"] == "application/x-raw-pixels"


@pytest.mark.usefixtures("added")
def test_it_is_a_choice_on_the_page_of_the_job(client: TestClient, services: Services, job_id: str) -> None:
    client.post("/sign-in", data={"key": keys.create(services.database, "visitor")[1]})
    page = client.get(f"/jobs/{job_id}")
    assert '<option value="raw">Raw pixels</option>' in page.text


def test_client_and_command_line_know_the_formats_of_the_service() -> None:
    assert get_args(Format) == tuple(WRITERS)
    models = ["safetensors", "onnx"]
    assert [format.value for format in FileFormat] == [*WRITERS, *models]


@pytest.mark.parametrize("name", WRITERS)
def test_names_are_safe_in_addresses_and_file_names(name: str) -> None:
    writer = WRITERS[name]
    assert writer.name == name
    assert name.isalnum()
    assert name.islower()
    assert writer.suffix.isalnum()
