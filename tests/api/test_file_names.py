"""A data set is called like its file unless it is given a name; that name is for its owner's lists and nothing else."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from api_builders import npz
from starlette.testclient import TestClient
from test_two_worlds import QUICK, look, train
from test_uploads import TUS
from test_validation import settled

from datalens_service.api.uploads.receiver import LONGEST, clean_label, label_in
from datalens_service.base import logs
from datalens_service.base.errors import InvalidInput
from datalens_service.client import Client, ServiceUnreachable
from datalens_service.client.transport import Transport
from datalens_service.store.access import webhooks
from datalens_service.store.jobs.events import EventType
from datalens_service.store.schema.service_tables import DeliveryRow

CANARY = "canary-4711"


@pytest.mark.parametrize(
    ("sent", "label"),
    [
        ("mnist.npz", "mnist.npz"),
        ("/home/maria/mnist.npz", "mnist.npz"),
        (r"C:\Users\Maria\mnist.npz", "mnist.npz"),
        ("..%2F..%2Fmnist.npz", "mnist.npz"),
        ("C%3A%5CUsers%5Cmnist.npz", "mnist.npz"),
        ("a%22b.npz", 'a"b.npz'),
        ("100%.npz", "100%.npz"),
        ("Häute 2026.zip", "Häute 2026.zip"),
        ("Ha\u0308ute.zip", "Häute.zip"),
        ("two\r\nlines\t.npz", "two lines .npz"),
        ("nul\x00 and\u202e turn.npz", "nul and turn.npz"),
        ("<script>.npz", "<script>.npz"),
        ("x" * 300, "x" * LONGEST),
        ("a\ud800%00%ff.npz", "a\ufffd.npz"),
        (".npz", None),
        (".tar.gz", None),
        ("folder/", None),
        ("..", None),
        ("\x00\x01", None),
        ("", None),
        (" ", None),
        ("-", None),
        ("blob", None),
        ("upload", None),
    ],
)
def test_a_label_is_what_people_call_the_file(sent: str, label: str | None) -> None:
    assert clean_label(sent) == label


def encoded(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


@pytest.mark.parametrize(
    ("header", "label"),
    [
        (None, None),
        ("", None),
        (f"filename {encoded('mnist.npz')}", "mnist.npz"),
        (f"filetype {encoded('application/zip')}, filename {encoded('a/b.zip')},is_confidential", "b.zip"),
        ("is_confidential", None),
        ("filename", None),
        (f"name {encoded('mnist.npz')}", None),
    ],
)
def test_metadata_of_tus_has_a_file_name(header: str | None, label: str | None) -> None:
    assert label_in(header) == label


@pytest.mark.parametrize("header", ["filename mnist.npz", "filename /w==", "filename bW5p c3Q=", "filename ü"])
def test_metadata_that_is_none_is_refused(header: str) -> None:
    with pytest.raises(InvalidInput, match="Base64"):
        label_in(header)


def sent_whole(client: TestClient, file_name: str, **fields: str) -> dict[str, Any]:
    form = {"epsilon": "10", "confirm_classes": "true", **fields}
    reply = client.post("/v1/datasets", files={"file": (file_name, npz())}, data=form)
    assert reply.status_code == 201, reply.text
    return dict(reply.json())


def sent_in_chunks(client: TestClient, content: bytes, metadata: str | None, **fields: Any) -> dict[str, Any]:
    named = {} if metadata is None else {"Upload-Metadata": metadata}
    made = client.post("/v1/uploads", headers={**TUS, "Upload-Length": str(len(content)), **named})
    assert made.status_code == 201, made.text
    path = f"/v1/uploads/{made.json()['id']}"
    assert client.head(path, headers=TUS).headers.get("Upload-Metadata") == metadata
    chunk = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert client.patch(path, headers=chunk, content=content).status_code == 204
    reply = client.post("/v1/datasets:from-upload", json={"upload_id": made.json()["id"], **fields})
    assert reply.status_code == 202, reply.text
    return settled(client, reply.json()["id"])


def test_a_form_without_a_name_takes_that_of_its_file(client: TestClient) -> None:
    assert sent_whole(client, r"C:\scans\skin.npz")["name"] == "skin.npz"
    nameless = sent_whole(client, ".npz")
    assert nameless["name"] == nameless["id"]
    assert sent_whole(client, "skin.npz", name="Skin")["name"] == "Skin"


def test_an_upload_in_chunks_without_a_name_takes_that_of_its_file(client: TestClient) -> None:
    metadata = f"filename {encoded('skin.npz')}"
    assert sent_in_chunks(client, npz(), metadata, epsilon=10)["name"] == "skin.npz"
    assert sent_in_chunks(client, npz(), metadata, name="Skin")["name"] == "Skin"
    nameless = sent_in_chunks(client, npz(), None)
    assert nameless["name"] == nameless["id"]


def test_metadata_that_is_none_is_answered_with_what_is_meant(client: TestClient) -> None:
    reply = client.post("/v1/uploads", headers={**TUS, "Upload-Length": "9", "Upload-Metadata": "filename x.npz"})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input")
    assert "Base64" in reply.json()["detail"]


def test_the_client_sends_the_name_of_the_file_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    def respond(_self: Transport, _method: str, _path: str, options: dict[str, Any]) -> NoReturn:
        sent.append(options)
        raise ServiceUnreachable("not there")

    monkeypatch.setattr(Transport, "respond", respond)
    path = tmp_path / "Häute.npz"
    path.write_bytes(b"x")
    with Client() as client:
        for upload in (client.upload_dataset, client.upload):
            with pytest.raises(ServiceUnreachable):
                upload(path)
    assert sent[0]["files"]["file"][0] == "Häute.npz"
    assert label_in(sent[1]["headers"]["Upload-Metadata"]) == "Häute.npz"


def test_a_file_name_is_in_nothing_but_the_lists_of_its_owner(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("debug")
    database = client.app.state.services.database
    webhooks.create(database, "default", "https://example.invalid/", list(EventType))
    dataset_id = sent_whole(client, f"{CANARY}.npz")["id"]
    other = sent_in_chunks(client, npz(), f"filename {encoded(CANARY)}")
    job_id = train(client, dataset_id, QUICK)
    refused = client.post("/v1/datasets", files={"file": (f"{CANARY}.npz", b"")}, data={"epsilon": "1"})
    assert refused.status_code == 422
    world = look(client, dataset_id, other["id"], job_id)
    with database.session() as session:
        messages = "".join(row.payload for row in session.query(DeliveryRow))
    told = {
        "refusal": refused.content,
        "log": capsys.readouterr().err.encode(),
        "messages": messages.encode(),
        "owner's report": json.dumps(world.private["report"]).encode(),
        "shares_budget_with": world.private["proof"],
        **{path: client.get(path).content for path in ("/metrics", f"/v1/jobs/{job_id}/events", "/v1/audit")},
        **world.files,
        **{address: content for address, (_, _, content) in world.answers.items()},
        **{file.name: file.path.read_bytes() for file in client.app.state.services.artifacts.list_artifacts(job_id)},
    }
    assert len(told) > 30
    assert all(told.values())
    for place, content in told.items():
        for part in unpacked(content):
            assert CANARY.encode() not in part, place
    assert CANARY in client.get("/v1/datasets").text, "the owner's list has it, so it would have been found"


def unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and what is in it if it is an archive."""
    yield content
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from unpacked(archive.read(name))
