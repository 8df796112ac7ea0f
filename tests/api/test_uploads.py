"""Uploads in pieces: tus 1.0, interrupted, damaged, at the same time, too long, on a full disk."""

import base64
import errno
import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest
from api_builders import npz
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.uploads import tus
from datalens_service.base.clock import utc_now
from datalens_service.base.settings import Settings
from datalens_service.services.removal import remove_expired
from datalens_service.store.datasets import upload_sessions
from datalens_service.store.schema.tables import UploadRow

TUS = {"Tus-Resumable": "1.0.0"}
CONTENT = bytes(range(256)) * 40


def begin(client: TestClient, length: int = len(CONTENT)) -> str:
    reply = client.post("/v1/uploads", headers={**TUS, "Upload-Length": str(length)})
    assert reply.status_code == 201, reply.text
    assert reply.json() == {**reply.json(), "offset": 0, "length": length, "complete": False}
    return str(reply.headers["Location"])


def piece(offset: int, checksum: str | None = None) -> dict[str, str]:
    headers = {**TUS, "Upload-Offset": str(offset), "Content-Type": tus.MEDIA_TYPE}
    return headers if checksum is None else {**headers, "Upload-Checksum": checksum}


def digest(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def offset(client: TestClient, place: str) -> int:
    reply = client.head(place, headers=TUS)
    assert reply.status_code == 200
    assert reply.headers["Cache-Control"] == "no-store"
    return int(reply.headers["Upload-Offset"])


def stored(settings: Settings, place: str) -> bytes:
    return (upload_sessions.partial_files(settings.data_dir) / place.rpartition("/")[2]).read_bytes()


def test_the_service_says_what_it_can(client: TestClient, settings: Settings) -> None:
    reply = client.options("/v1/uploads")
    assert reply.status_code == 204
    assert reply.headers["Tus-Version"] == reply.headers["Tus-Resumable"] == "1.0.0"
    assert reply.headers["Tus-Extension"].split(",") == ["creation", "checksum", "termination", "expiration"]
    assert reply.headers["Tus-Max-Size"] == str(settings.max_upload_bytes)
    assert "sha1" in reply.headers["Tus-Checksum-Algorithm"].split(",")


def test_pieces_make_a_file(client: TestClient, settings: Settings) -> None:
    place = begin(client)
    for start in range(0, len(CONTENT), 4000):
        reply = client.patch(place, headers=piece(start), content=CONTENT[start : start + 4000])
        assert reply.status_code == 204, reply.text
        assert int(reply.headers["Upload-Offset"]) == offset(client, place) == min(start + 4000, len(CONTENT))
        assert "Upload-Expires" in reply.headers
    assert stored(settings, place) == CONTENT
    assert client.get(place).json()["complete"] is True


def test_checksums_are_checked(client: TestClient, settings: Settings) -> None:
    for algorithm in tus.ALGORITHMS:
        place = begin(client)
        first = CONTENT[:1000]
        assert client.patch(place, headers=piece(0, digest(first, algorithm)), content=first).status_code == 204
        wrong = client.patch(place, headers=piece(1000, digest(first, algorithm)), content=CONTENT[1000:3000])
        assert (wrong.status_code, wrong.json()["code"]) == (460, "checksum-mismatch")
        assert (offset(client, place), stored(settings, place)) == (1000, first)
        rest = CONTENT[1000:]
        assert client.patch(place, headers=piece(1000, digest(rest, algorithm)), content=rest).status_code == 204
        assert stored(settings, place) == CONTENT


def test_unusable_checksums(client: TestClient) -> None:
    for header in ["md4 AAAA", "sha256 !!!", "", "crc32 AAAA"]:
        reply = client.patch(begin(client), headers=piece(0, header), content=CONTENT)
        assert (reply.status_code, reply.json()["code"]) == (400, "malformed-request"), header


def test_a_piece_must_begin_where_the_file_ends(client: TestClient) -> None:
    place = begin(client)
    client.patch(place, headers=piece(0), content=CONTENT[:1000])
    for start in (0, 999, 1001):
        reply = client.patch(place, headers=piece(start), content=b"x")
        assert (reply.status_code, reply.json()["code"]) == (409, "upload-offset-mismatch")
    assert offset(client, place) == 1000


def test_two_requests_at_once(client: TestClient, settings: Settings) -> None:
    place = begin(client)
    path = upload_sessions.partial_files(settings.data_dir) / place.rpartition("/")[2]
    with tus.locked_file(path):
        for reply in (client.patch(place, headers=piece(0), content=b"x"), client.delete(place, headers=TUS)):
            assert (reply.status_code, reply.json()["code"]) == (423, "upload-locked")
    assert client.patch(place, headers=piece(0), content=b"x").status_code == 204


def test_too_long(client: TestClient, settings: Settings) -> None:
    announced = {**TUS, "Upload-Length": str(settings.max_upload_bytes + 1)}
    assert client.post("/v1/uploads", headers=announced).status_code == 413
    place = begin(client)
    client.patch(place, headers=piece(0), content=CONTENT[:100])
    reply = client.patch(place, headers=piece(100), content=CONTENT)
    assert (reply.status_code, reply.json()["code"]) == (413, "payload-too-large")
    assert (offset(client, place), stored(settings, place)) == (100, CONTENT[:100])


def test_lengths_that_are_none(client: TestClient) -> None:
    for length in ["-1", "x", "1_0", None]:
        reply = client.post("/v1/uploads", headers={**TUS, **({"Upload-Length": length} if length else {})})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), length


def test_version_and_media_type(client: TestClient) -> None:
    place = begin(client)
    old = {"Tus-Resumable": "0.2.2"}
    length = {"Upload-Length": "5"}
    for reply in (
        client.post("/v1/uploads", headers={**old, **length}),
        client.post("/v1/uploads", headers=length),
        client.patch(place, headers={**piece(0), **old}, content=b"x"),
        client.delete(place, headers=old),
    ):
        assert (reply.status_code, reply.json()["code"]) == (412, "upload-protocol")
        assert reply.headers["Tus-Version"] == "1.0.0"
    reply = client.patch(place, headers={**piece(0), "Content-Type": "text/plain"}, content=b"x")
    assert (reply.status_code, reply.json()["code"]) == (415, "unsupported-media-type")


def test_giving_up(client: TestClient, settings: Settings) -> None:
    place = begin(client)
    client.patch(place, headers=piece(0), content=CONTENT)
    assert client.delete(place, headers=TUS).status_code == 204
    assert list(upload_sessions.partial_files(settings.data_dir).iterdir()) == []
    assert client.head(place, headers=TUS).status_code == 404
    assert client.delete(place, headers=TUS).status_code == 404


def test_expired_uploads_go(client: TestClient, services: Services, settings: Settings) -> None:
    places = [begin(client), begin(client)]
    for place in places:
        client.patch(place, headers=piece(0), content=CONTENT)
    with services.database.transaction() as session:
        past = utc_now() - timedelta(seconds=1)
        session.execute(update(UploadRow).where(UploadRow.id == places[0][12:]).values(expires_at=past))
    assert client.head(places[0], headers=TUS).status_code == 404
    remove_expired(services.database, services.artifacts, settings)
    assert [path.name for path in upload_sessions.partial_files(settings.data_dir).iterdir()] == [places[1][12:]]


@pytest.mark.parametrize("checksum", [None, digest(CONTENT)])
def test_an_interrupted_piece(
    client: TestClient, settings: Settings, checksum: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a checksum, what arrived counts; with one, nothing does."""
    place = begin(client)

    class HungUp(Exception):
        pass

    monkeypatch.setattr("datalens_service.api.rest.uploads.ClientDisconnect", HungUp)
    monkeypatch.setattr("datalens_service.api.http.middleware.ClientDisconnect", HungUp)
    take = tus.Chunk.write

    def then_hang_up(self: tus.Chunk, data: bytes) -> None:
        take(self, data[:700])
        raise HungUp

    monkeypatch.setattr(tus.Chunk, "write", then_hang_up)
    with pytest.raises(AssertionError, match="response"):
        client.patch(place, headers=piece(0, checksum), content=CONTENT)
    monkeypatch.undo()
    there = 0 if checksum else 700
    assert offset(client, place) == there
    rest = CONTENT[there:]
    assert client.patch(place, headers=piece(there, digest(rest)), content=rest).status_code == 204
    assert stored(settings, place) == CONTENT


def test_what_a_killed_service_wrote_and_did_not_note_is_overwritten(client: TestClient, settings: Settings) -> None:
    place = begin(client)
    client.patch(place, headers=piece(0), content=CONTENT[:1000])
    with (upload_sessions.partial_files(settings.data_dir) / place[12:]).open("ab") as file:
        file.write(b"never noted")
    assert offset(client, place) == 1000
    client.patch(place, headers=piece(1000), content=CONTENT[1000:])
    assert stored(settings, place) == CONTENT


def test_a_disk_that_is_full_when_it_is_synced_keeps_what_was_there(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = begin(client)
    client.patch(place, headers=piece(0), content=CONTENT[:1000])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    reply = client.patch(place, headers=piece(1000), content=CONTENT[1000:])
    monkeypatch.undo()
    assert (reply.status_code, reply.json()["code"]) == (503, "insufficient-storage")
    assert (offset(client, place), stored(settings, place)) == (1000, CONTENT[:1000])


def test_names_are_never_paths(client: TestClient, settings: Settings) -> None:
    secret = settings.data_dir / "secret"
    secret.write_bytes(b"x")
    for name in ("..%2fsecret", "%2e%2e", "secret", ".."):
        assert client.patch(f"/v1/uploads/{name}", headers=piece(0), content=npz()).status_code in (404, 405, 422)
    assert Path(secret).read_bytes() == b"x"
