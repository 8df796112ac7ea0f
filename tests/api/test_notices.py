"""Notices on an upload: what they say, and that nobody but the owner of the records hears them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import CONFIRMED, another_caller, arrays, npz, released, send_images, zipped
from PIL import Image
from sqlalchemy import select
from starlette.testclient import TestClient
from test_validation import register, settled

from datalens_service.api.deps import Services
from datalens_service.base import logs
from datalens_service.data.notices import NoticeCode
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.schema.tables import Base
from tests.data.builders import encoded

SECRET = "patient-4711"  # noqa: S105


def folders() -> bytes:
    """Twenty records in two classes, and whatever is worth a notice under a secret name."""
    rng = np.random.default_rng(7)
    files = {}
    for number in range(20):
        pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8) * (number != 3)
        exif = Image.Exif()
        exif[0x0112] = 3 if number == 5 else 1
        image = files[f"train/{number % 2}/{SECRET}-{number}.png"] = encoded(Image.fromarray(pixels), exif=exif)
    return zipped({**files, f"val/0/{SECRET}.png": image, f"train/0/.{SECRET}/hidden.png": image})


NOTICED = {
    "ignored_split": [f"val/0/{SECRET}.png"],
    "ignored_files": [f"train/0/.{SECRET}/hidden.png"],
    "orientation_applied": [f"train/1/{SECRET}-5.png"],
    "constant_images": ["image 16"],
}


def noticed(answer: dict[str, Any]) -> dict[str, list[str]]:
    assert all(notice["message"] and notice["count"] == len(notice["examples"]) for notice in answer["notices"])
    return {notice["code"]: notice["examples"] for notice in answer["notices"]}


def test_both_kinds_of_upload_say_the_same(client: TestClient) -> None:
    reply = send_images(client, folders())
    assert (reply.headers["Cache-Control"], reply.headers["X-Datalens-Audience"]) == ("private, no-store", "owner")
    assert noticed(reply.json()) == NOTICED
    report = client.get(f"{reply.headers['Location']}/validation").json()
    assert (report["notices"], report["audience"]) == (reply.json()["notices"], "owner")
    client.delete(reply.headers["Location"])
    assert client.get(f"{reply.headers['Location']}/validation").json()["notices"] == []

    later = register(client, folders())
    assert settled(client, later)["state"] == "ready"
    counts = {item["code"]: item["count"] for item in client.get(f"/v1/datasets/{later}/validation").json()["notices"]}
    shared = {"shares_records": 20, "shares_constant_images": 1}
    assert counts == {**dict.fromkeys(NOTICED, 1), **shared}


def test_notices_are_for_the_owner_and_nowhere_else(
    client: TestClient, services: Services, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("debug")
    direct = send_images(client, folders()).json()["id"]
    later = register(client, folders())
    settled(client, later)
    job_id = released(client, tmp_path, direct)
    shown = [client.get(path, params=params).text for path, params in _reads(direct, later, job_id)]
    for role in (Role.OPERATOR, Role.CONSUMER):
        as_role = another_caller(client, KeyRequest(role.value, role=role))
        assert as_role.get(f"/v1/datasets/{direct}/validation").status_code == 403
        assert send_images(as_role, epsilon="1").status_code == 403
        shown += [as_role.get(path, params=params).text for path, params in _reads(direct, later, job_id)]
    logged = capfd.readouterr()
    everything = "".join([*shown, logged.out, logged.err])
    assert "request" in logged.err
    for word in (SECRET, "notices", *(f'"{code}"' for code in NoticeCode)):
        assert word not in everything
    with services.database.connection() as connection:
        for table in Base.metadata.sorted_tables:
            rows = "".join(str(row) for row in connection.execute(select(table)))
            named = [word for word in (SECRET, *NoticeCode) if word in rows]
            assert bool(named) == (table.name == "intakes")


def _reads(direct: str, later: str, job_id: str) -> list[tuple[str, dict[str, str]]]:
    """Whatever can be read without being the report on an upload."""
    of_datasets = [
        f"/v1/datasets/{dataset_id}{part}"
        for dataset_id in (direct, later)
        for part in ("", "/privacy", "/privacy/entries")
    ]
    of_job = [
        f"/v1/jobs/{job_id}{part}"
        for part in ("", "/events", "/report", "/bundle", "/artifacts", "/dataset", "/synthetic", "/generator")
    ]
    files = [f"/v1/jobs/{job_id}/artifacts/{name}" for name in ("card.json", "report-releasable.json", "privacy.json")]
    lists = ["/v1/datasets", "/v1/jobs", "/v1/generators", "/v1/audit", "/v1/usage", "/metrics", "/v1/webhooks"]
    audiences = [(f"/v1/jobs/{job_id}/report", {"audience": audience}) for audience in ("owner", "releasable")]
    return [*((path, {}) for path in [*of_datasets, *of_job, *files, *lists]), *audiences]


@pytest.mark.parametrize("leave_out", ["true", "false"])
def test_a_blank_image_is_left_out_where_that_is_asked(client: TestClient, leave_out: str) -> None:
    images = arrays()["images"]
    images[0] = 0
    send_images(client, npz(images=images))
    others = arrays(1)["images"]
    others[9] = 0
    form = {**CONFIRMED, "epsilon": "10", "leave_out_constant_images": leave_out}
    reply = client.post("/v1/datasets", files={"file": npz(images=others)}, data=form)
    if leave_out == "true":
        assert (reply.status_code, reply.json()["schema"]["num_units"]) == (201, 199)
        assert noticed(reply.json()) == {"constant_images_left_out": ["image 9"]}
    else:
        assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict")
        assert "leave_out_constant_images" in reply.json()["detail"]
