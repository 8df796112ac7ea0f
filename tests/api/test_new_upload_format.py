"""An upload format is one module: nothing of it stands anywhere else."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import datalens_service
from datalens_service.data.readers import READERS
from tests.extensions.drop_in import drop_in

SOURCE = '''
"""A word, the side of the images, then for each record its label and one grey byte per pixel."""

import numpy as np

from datalens_service.data.readers.base import Reader, RecordIndex, UploadIndex
from datalens_service.data.readers.labels import column_of_array
from datalens_service.data.untrusted.images import DecodedImages

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
PACKAGE = "datalens_service.data.readers"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A copy of the product with the new file and its line: the process that reads files imports it."""
    copy = tmp_path / "product" / "datalens_service"
    shutil.copytree(Path(datalens_service.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    room = copy / "data" / "readers"
    reader = drop_in(monkeypatch, room, PACKAGE, SOURCE).READER
    registry = (room / "__init__.py").read_text()
    line = "    image_folder.READER,\n"
    assert line in registry
    registry = registry.replace("import idx,", "import extension, idx,").replace(line, f"{line}    extension.READER,\n")
    (room / "__init__.py").write_text(registry)
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    monkeypatch.setitem(READERS, reader.name, reader)


def upload(client: TestClient, content: bytes) -> tuple[int, dict[str, object]]:
    reply = client.post("/v1/datasets", files={"file": content}, data={"confirm_classes": "true", "epsilon": "10"})
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


@pytest.mark.usefixtures("added")
def test_one_file_makes_a_format_that_is_accepted(client: TestClient) -> None:
    status, dataset = upload(client, pixels())
    assert status == 201, dataset
    assert dataset["format"] == "pixels"


@pytest.mark.usefixtures("added")
def test_the_refusal_of_unknown_files_names_it(client: TestClient) -> None:
    status, problem = upload(client, b"nothing that anybody reads")
    assert (status, problem["code"]) == (422, "dataset-invalid")
    assert "nor a file of raw pixels." in str(problem["detail"])


def test_the_documentation_has_a_row_for_every_format() -> None:
    table = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for name, reader in READERS.items():
        assert reader.name == name
        assert f"| {reader.title} | {reader.layout} |" in table
