"""A format of output or of uploads is one module: nothing of it stands anywhere else."""

import importlib
import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from api_builders import browser, released, send_images
from starlette.testclient import TestClient

import datalens_service
from datalens_service.cli.commands.downloads import FileFormat
from datalens_service.client import Format
from datalens_service.data.export import WRITERS
from datalens_service.data.intake.readers import READERS
from datalens_service.services import synthetic_files
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
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    return released(client, tmp_path, dataset_id, synthetic_images=20, card=EXAMPLE_PROOF["card"])


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
    reply = downloaded(client, f"/v1/jobs/{job_id}/synthetic", synthetic_images=3)
    assert reply.headers["content-type"] == "application/x-raw-pixels"
    assert reply.headers["content-disposition"] == f'attachment; filename="{job_id}-synthetic.bin"'
    header, _, pixels = reply.content.partition(b"\n")
    assert json.loads(header)["shape"] == [3, 8, 8, 1]
    assert json.loads(header)["provenance"]["synthetic"] is True
    assert len(pixels) == 3 * 8 * 8
    content = downloaded(client, f"/v1/jobs/{job_id}/dataset").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "data/synthetic.bin" in archive.namelist()
        distribution = json.loads(archive.read("croissant.json"))["distribution"]
    assert distribution[0]["encodingFormat"] == "application/x-raw-pixels"
    assert '<option value="raw">Raw pixels</option>' in browser(client).get(f"/jobs/{job_id}").text


def test_client_and_command_line_know_the_formats_of_the_service() -> None:
    assert get_args(Format) == tuple(WRITERS)
    models = ["safetensors", "onnx"]
    assert [*get_args(FileFormat)] == [*WRITERS, *models]


@pytest.mark.parametrize("name", WRITERS)
def test_names_are_safe_in_addresses_and_file_names(name: str) -> None:
    writer = WRITERS[name]
    assert writer.name == name
    assert name.isalnum()
    assert name.islower()
    assert writer.suffix.isalnum()


READER_SOURCE = '''
"""A word, the side of the images, then for each record its label and one grey byte per pixel."""

import numpy as np

from datalens_service.data.intake.readers.base import Reader, RecordIndex, UploadIndex
from datalens_service.data.intake.readers.labels import column_of_array
from datalens_service.data.intake.untrusted.images import DecodedImages

MAGIC = b"PIXELS"


def recognises(source, choices):
    return source.start(len(MAGIC)) == MAGIC


def index(source, choices):
    content = source.path.read_bytes()[len(MAGIC) :]
    side = content[0]
    rows = np.frombuffer(content[1:], dtype=np.uint8).reshape(-1, 1 + side * side)
    images = rows[:, 1:].reshape(-1, side, side, 1)
    decoded = DecodedImages(images, np.arange(len(images)))
    return UploadIndex(RecordIndex("the labels", column_of_array(rows[:, 0]), lambda first: decoded), None)


READER = Reader(
    name="pixels",
    title="a file of raw pixels",
    layout="`PIXELS`, a side, then a label and the bytes of each image",
    suffixes=(".pixels",),
    recognises=recognises,
    index=index,
)
'''
PACKAGE = "datalens_service.data.intake.readers"


@pytest.fixture
def reader_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A copy of the product with the new file and its line: the process that reads files imports it."""
    copy = tmp_path / "product" / "datalens_service"
    shutil.copytree(Path(datalens_service.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    room = copy / "data" / "intake" / "readers"
    reader = drop_in(monkeypatch, room, PACKAGE, READER_SOURCE).READER
    registry = (room / "__init__.py").read_text()
    line = "    image_folder.READER,\n"
    assert line in registry
    registry = registry.replace("import idx,", "import extension, idx,").replace(line, f"{line}    extension.READER,\n")
    (room / "__init__.py").write_text(registry)
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    monkeypatch.setitem(READERS, reader.name, reader)


def upload(client: TestClient, content: bytes) -> tuple[int, dict[str, object]]:
    reply = send_images(client, content)
    return reply.status_code, reply.json()


def pixels() -> bytes:
    rng = np.random.default_rng(3)
    records = [bytes([number % 2]) + rng.bytes(64) for number in range(40)]
    return b"PIXELS\x08" + b"".join(records)


def test_a_format_without_a_reader_is_refused(client: TestClient) -> None:
    status, problem = upload(client, pixels())
    assert (status, problem["code"]) == (422, "dataset-invalid")
    assert all(reader.title in str(problem["detail"]) for reader in READERS.values())
    assert "raw pixels" not in str(problem["detail"])


@pytest.mark.usefixtures("reader_added")
def test_one_file_makes_a_format_that_is_accepted(client: TestClient) -> None:
    status, dataset = upload(client, pixels())
    assert status == 201, dataset
    assert dataset["format"] == "pixels"
    status, problem = upload(client, b"nothing that anybody reads")
    assert (status, problem["code"]) == (422, "dataset-invalid")
    assert "nor a file of raw pixels." in str(problem["detail"])


def test_the_documentation_has_a_row_for_every_format() -> None:
    table = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for name, reader in READERS.items():
        assert reader.name == name
        assert f"| {reader.title} | {reader.layout} |" in table
