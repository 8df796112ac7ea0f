"""Uploads that are read after the answer: ready or invalid, with a report for the owner alone."""

import io
import json
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from api_builders import arrays, bearer, journal, npz, send_images, training, zipped
from PIL import Image, PngImagePlugin
from starlette.testclient import TestClient
from test_uploads import TUS, begin, piece

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base import logs
from datalens_service.base.settings import Settings
from datalens_service.data.intake.untrusted.validation_errors import LISTED
from datalens_service.proof.hash_chain import Entry
from datalens_service.services import ingestion
from datalens_service.store.datasets import datasets, upload_sessions
from datalens_service.store.datasets.datasets import DatasetState
from tests.data.builders import grey

SECRET = "patient-4711"  # noqa: S105
PATIENCE = 120
Found = TypeVar("Found")


def uploaded(client: TestClient, content: bytes) -> str:
    place = begin(client, len(content))
    assert client.patch(place, headers=piece(0), content=content).status_code == 204
    return place.rpartition("/")[2]


def register(client: TestClient, content: bytes, **form: Any) -> str:
    given = {"upload_id": uploaded(client, content), "epsilon": 10, "confirm_classes": True, **form}
    reply = client.post("/v1/datasets:from-upload", json=given)
    assert reply.status_code == 202, reply.text
    assert reply.headers["Location"] == f"/v1/datasets/{reply.json()['id']}"
    return str(reply.json()["id"])


def until(found: Callable[[], Found], settled: Callable[[Found], bool]) -> Found:
    """What is found once it is settled."""
    deadline = time.monotonic() + PATIENCE
    while not settled(latest := found()):
        assert time.monotonic() < deadline, latest
        time.sleep(0.02)
    return latest


def settled(client: TestClient, dataset_id: str, part: str = "") -> dict[str, Any]:
    """The data set, or a part of it, once its upload was read: `/validation` knows a moment later."""
    path = f"/v1/datasets/{dataset_id}{part}"
    return until(lambda: dict(client.get(path).json()), lambda one: one["state"] != "validating")


def wait_until_removed(settings: Settings) -> None:
    """Until nothing is left of the uploads: a moment after what came of them is noted."""
    until(lambda: list(upload_sessions.partial_files(settings.data_dir).iterdir()), lambda left: not left)


def test_an_upload_that_breaks_its_reader_holds_up_no_other(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = ingestion.receive

    def break_one(*arguments: Any, **options: Any) -> None:
        if arguments[-1].form["name"] == "broken":
            raise RuntimeError("nobody meant this")
        receive(*arguments, **options)

    monkeypatch.setattr(ingestion, "receive", break_one)
    broken, sound = (register(client, npz(), name=name) for name in ("broken", "sound"))
    assert settled(client, sound)["state"] == "ready"
    assert client.get(f"/v1/datasets/{broken}").json()["state"] == "validating"


def folder(*damaged: int, images: int = 8) -> bytes:
    return zipped({
        f"{'ab'[number % 2]}/{SECRET}-{number}.png": grey(number)[: -30 if number in damaged else None]
        for number in range(images)
    })  # fmt: skip


def test_an_upload_in_pieces_says_which_account_it_joins(client: TestClient) -> None:
    first = register(client, npz())
    assert settled(client, first)["joined"] is None
    again = register(client, npz(), epsilon=None)
    settled(client, again)
    report = settled(client, again, "/validation")
    assert (report["joined"]["known_records"], report["joined"]["dataset_ids"]) == (200, [first])
    assert client.get(f"/v1/datasets/{again}").json()["joined"] == report["joined"]
    client.delete(f"/v1/datasets/{again}")
    assert client.get(f"/v1/datasets/{again}").json()["joined"] is None


def test_a_good_upload_becomes_a_data_set(client: TestClient, settings: Settings) -> None:
    dataset_id = register(client, npz(), name="Digits", class_names=["a", "b", "c", "d"])
    found = settled(client, dataset_id)
    assert (found["state"], found["name"], found["format"]) == ("ready", "Digits", "npz")
    assert found["privacy"]["epsilon_limit"] == 10
    report = settled(client, dataset_id, "/validation")
    assert report["counts"] == {
        "train": 200,
        "test": 0,
        "classes": dict.fromkeys("abcd", 50),
        "test_classes": {},
        "duplicates": 0,
    }
    assert report["audience"] == "owner"
    wait_until_removed(settings)
    assert client.post("/v1/jobs", json=training(dataset_id)).status_code == 202


def test_bad_files_are_named_to_the_owner_and_nowhere_else(
    client: TestClient, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset_id = register(client, folder(3, 6))
    found = settled(client, dataset_id)
    assert (found["state"], found["privacy"], found["schema"]) == ("invalid", None, None)
    reply = client.get(f"/v1/datasets/{dataset_id}/validation")
    assert reply.headers["Cache-Control"] == "private, no-store"
    report = reply.json()
    assert [file["name"] for file in report["bad_files"]] == [f"a/{SECRET}-6.png", f"b/{SECRET}-3.png"]
    assert all("complete PNG" in file["reason"] for file in report["bad_files"])
    assert (report["code"], report["bad_count"], report["checked"]) == ("dataset-invalid", 2, 8)
    assert SECRET not in json.dumps([found, client.get("/v1/datasets").json()])
    logged = capfd.readouterr()
    assert SECRET not in logged.out + logged.err
    refused = client.post("/v1/jobs", json=training(dataset_id))
    assert (refused.status_code, "cannot be used" in refused.json()["detail"]) == (409, True)
    wait_until_removed(settings)


def test_a_direct_upload_has_a_report(client: TestClient) -> None:
    doubled = arrays()
    doubled["images"][150:] = doubled["images"][:50]
    reply = send_images(client, npz(**doubled), epsilon="1")
    report = client.get(f"{reply.headers['Location']}/validation").json()
    assert (report["state"], report["counts"]["duplicates"]) == ("ready", 50)


def test_a_direct_upload_is_refused_with_the_findings_of_the_other_way(
    client: TestClient, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("debug")
    for content in (folder(3, 6), b"nothing" * 9):
        dataset_id = register(client, content)
        settled(client, dataset_id)
        report = client.get(f"/v1/datasets/{dataset_id}/validation").json()
        refused = send_images(client, content, epsilon="1")
        assert refused.headers["Cache-Control"] == "private, no-store"
        assert refused.headers["X-Datalens-Audience"] == "owner"
        members = ("code", "detail", "bad_files", "bad_count", "checked")
        assert [refused.json()[name] for name in members] == [report[name] for name in members]
        assert SECRET not in report["detail"]
    elsewhere = [client.get(path).text for path in ("/metrics", "/v1/audit", "/v1/datasets", "/v1/usage")]
    logged = capfd.readouterr()
    assert "dataset-invalid" in logged.out + logged.err or "422" in logged.out + logged.err
    assert SECRET not in "".join([*elsewhere, logged.out, logged.err])


def test_a_refusal_names_a_bounded_number_of_files(client: TestClient) -> None:
    content = folder(*range(LISTED + 5), images=LISTED + 8)
    refused = send_images(client, content, epsilon="1").json()
    assert (len(refused["bad_files"]), refused["bad_count"], refused["checked"]) == (LISTED, LISTED + 5, LISTED + 8)


def test_what_has_no_budget_is_refused_after_reading(client: TestClient) -> None:
    dataset_id = register(client, npz(), delta=0.5)
    assert settled(client, dataset_id)["state"] == "invalid"
    assert client.get(f"/v1/datasets/{dataset_id}/validation").json()["code"] == "invalid-delta"


def test_unfinished_uploads_are_not_taken(client: TestClient) -> None:
    place = begin(client, 100)
    client.patch(place, headers=piece(0), content=b"x" * 99)
    reply = client.post("/v1/datasets:from-upload", json={"upload_id": place.rpartition("/")[2], "epsilon": 1})
    assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict")
    assert client.head(place, headers=TUS).headers["Upload-Offset"] == "99"


# The first is where earlier clients send it.
@pytest.mark.parametrize("path", ["/v1/datasets", "/v1/datasets:from-upload"])
def test_an_upload_is_taken_once(client: TestClient, path: str) -> None:
    upload_id = uploaded(client, npz())
    body = {"upload_id": upload_id, "epsilon": 10, "confirm_classes": True}
    first, second = (client.post(path, json=body) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 404)
    assert settled(client, first.json()["id"])["state"] == "ready"


def test_reading_goes_on_after_a_restart(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = threading.Event()

    def until_stopped(*_: object, stopping: Any, **_options: object) -> None:
        reading.set()
        while not stopping():
            time.sleep(0.01)
        from datalens_service.base.errors import StoreUnavailable

        raise StoreUnavailable("stopped")

    with TestClient(create_app(settings), base_url="http://service") as http:
        http.headers.update(bearer(http))
        monkeypatch.setattr("datalens_service.services.ingestion.decode", until_stopped)
        dataset_id = register(http, npz())
        assert reading.wait(PATIENCE)
    monkeypatch.undo()
    with TestClient(create_app(settings), base_url="http://service", headers=http.headers) as again:
        assert settled(again, dataset_id)["state"] == "ready"


def test_a_receipt_names_the_journals_word(client: TestClient, dataset_id: str) -> None:
    receipt = client.delete(f"/v1/datasets/{dataset_id}").json()
    assert receipt["entry"] == journal(client, dataset_id)[-1]
    entry = Entry.model_validate(receipt["entry"])
    assert (entry.kind, entry.dataset_id, entry.computed_hash()) == ("delete", dataset_id, entry.hash)
    assert "the records" in receipt["removed"]
    assert client.delete(f"/v1/datasets/{dataset_id}").json() == receipt
    report = client.get(f"/v1/datasets/{dataset_id}/validation").json()
    assert (report["state"], report["counts"]) == ("deleted", None)


def test_an_invalid_upload_can_be_deleted_with_its_report(client: TestClient) -> None:
    dataset_id = register(client, folder(1))
    settled(client, dataset_id)
    receipt = client.delete(f"/v1/datasets/{dataset_id}").json()
    assert (receipt["entry"], receipt["account_id"]) == (None, None)
    assert SECRET not in client.get(f"/v1/datasets/{dataset_id}/validation").text
    assert client.get(f"/v1/datasets/{dataset_id}").json()["state"] == "deleted"


def test_the_preview_is_private(client: TestClient, services: Services, dataset_id: str) -> None:
    reply = client.get(f"/v1/datasets/{dataset_id}/preview")
    assert reply.status_code == 200
    assert reply.headers["Cache-Control"] == "private, no-store"
    assert reply.headers["X-Datalens-Audience"] == "owner"
    picture = Image.open(io.BytesIO(reply.content))
    assert isinstance(picture, PngImagePlugin.PngImageFile)
    assert "owner only" in picture.text["Comment"]
    assert b"trainedAlgorithmicMedia" not in reply.content
    assert picture.getpixel((2, 2)) == arrays()["images"][0, 0, 0]
    anonymous = client.get(f"/v1/datasets/{dataset_id}/preview", headers={"Authorization": ""})
    assert anonymous.status_code == 401
    client.delete(f"/v1/datasets/{dataset_id}")
    gone = client.get(f"/v1/datasets/{dataset_id}/preview")
    assert (gone.status_code, gone.json()["code"]) == (409, "state-conflict")
    assert datasets.get(services.database, dataset_id).state is DatasetState.DELETED
