"""What a succeeded job hands out: files with strong ETags and ranges, synthetic images in any number."""

import hashlib
import io
import json
import re
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from api_builders import NUM_CLASSES, SIDE, bearer, gaussian, released, report, routes, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.http.strictness import list_parameters
from datalens_service.data.dataset import Schema
from datalens_service.report.build import REQUIRED_FIELDS
from datalens_service.report.document import compute_seal
from datalens_service.services import synthetic_files
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role

PACKED = 50


@pytest.fixture
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    """A job that has succeeded with 50 packed images."""
    return released(client, tmp_path, dataset_id, synthetic_images=PACKED)


def decode_entries(content: bytes) -> np.ndarray:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return arrays["train_images"]


def drawn(client: TestClient, n: int, seed: int) -> np.ndarray:
    """What the generator of the job draws."""
    schema = Schema(channels=1, height=SIDE, width=SIDE, class_names=("0", "1", "2", "3"), num_units=200)
    return gaussian(schema).sample(n, seed=seed)[0][..., 0]


def test_nothing_to_download_before_success(client: TestClient, dataset_id: str) -> None:
    for path in ["report", "bundle", "samples.png", "generator", "synthetic"]:
        job = client.post("/v1/jobs", json=training(dataset_id)).json()
        reply = client.get(f"/v1/jobs/{job['id']}/{path}")
        assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict"), path


def test_links_lead_to_the_files(client: TestClient, job_id: str) -> None:
    links = client.get(f"/v1/jobs/{job_id}").json()["links"]
    assert links["cancel"] is None
    for name in ("report", "bundle", "samples", "synthetic", "generator", "files"):
        assert client.get(links[name]).status_code == 200


def test_reports(client: TestClient, job_id: str) -> None:
    for params, content, kind in [
        ({}, report("owner"), "application/json"),
        ({"format": "html"}, b"<p>owner</p>", "text/html"),
        ({"audience": "releasable"}, report("releasable"), "application/json"),
        ({"audience": "releasable", "format": "html"}, b"<p>releasable</p>", "text/html"),
    ]:
        reply = client.get(f"/v1/jobs/{job_id}/report", params=params)
        assert reply.content == content, params
        assert reply.headers["content-type"].startswith(kind)
        assert "sandbox" in reply.headers["content-security-policy"]


def test_a_report_without_a_field_is_not_handed_out(client: TestClient, services: Services, job_id: str) -> None:
    for format in ["json", "html"]:
        for field in REQUIRED_FIELDS:
            for path in REQUIRED_FIELDS[field].paths:
                content = json.loads(report("releasable"))
                *parents, last = path.split(".")
                inner = content
                for parent in parents:
                    inner = inner[parent]
                del inner[last]
                # Sealed again, as a program would that left the field out.
                content["seal"] = {**content.get("seal", {}), "sha256": compute_seal(content)}
                services.artifacts.get(job_id, "report-releasable.json").path.write_text(json.dumps(content))
                reply = client.get(f"/v1/jobs/{job_id}/report", params={"audience": "releasable", "format": format})
                assert (reply.status_code, reply.json()["code"]) == (500, "report-incomplete"), path


def test_the_proof_of_the_job_is_for_anybody_and_the_journal_for_the_owner(client: TestClient, job_id: str) -> None:
    partner = bearer(client, KeyRequest("partner", role=Role.CONSUMER))
    for headers in ({}, partner):
        reply = client.get(f"/v1/jobs/{job_id}/bundle", headers=headers)
        assert (reply.status_code, reply.json()) == (200, {"format": "datalens-bundle/2"})
    journal = f"/v1/jobs/{job_id}/artifacts/account-proof.json"
    assert client.get(journal).json() == {"format": "datalens-bundle/1"}
    assert client.get(journal, headers=partner).status_code == 404
    assert reply.headers["content-type"].startswith("application/json")
    assert f'filename="{job_id}-privacy.json"' in reply.headers["content-disposition"]


def test_releasable_report_is_never_a_private_file(
    client: TestClient, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the names were mixed up, the store refuses to hand the owner's report to others."""
    from datalens_service.api.rest import downloads

    monkeypatch.setitem(downloads._REPORT_NAMES, downloads.ReportCopy.RELEASABLE, "report")
    reply = client.get(f"/v1/jobs/{job_id}/report", params={"audience": "releasable"})
    assert reply.status_code == 404


def test_etag_is_the_digest_and_spares_a_second_download(client: TestClient, job_id: str) -> None:
    first = client.get(f"/v1/jobs/{job_id}/generator")
    etag = f'"{hashlib.sha256(first.content).hexdigest()}"'
    assert first.headers["etag"] == etag
    for value in (etag, f'"other", W/{etag}', "*"):
        again = client.get(f"/v1/jobs/{job_id}/generator", headers={"If-None-Match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert client.get(f"/v1/jobs/{job_id}/generator", headers={"If-None-Match": '"other"'}).status_code == 200


def test_ranges_put_together_are_the_file(client: TestClient, job_id: str) -> None:
    whole = client.get(f"/v1/jobs/{job_id}/generator")
    etag = whole.headers["etag"]
    path = f"/v1/jobs/{job_id}/generator"
    head = client.get(path, headers={"Range": "bytes=0-99"})
    tail = client.get(path, headers={"Range": "bytes=100-", "If-Range": etag})
    assert (head.status_code, tail.status_code) == (206, 206)
    assert head.headers["content-range"] == f"bytes 0-99/{len(whole.content)}"
    assert head.content + tail.content == whole.content
    changed = client.get(path, headers={"Range": "bytes=100-", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, whole.content)


def test_range_behind_the_end(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/samples.png", headers={"Range": "bytes=1000-"})
    assert (reply.status_code, reply.json()["code"]) == (416, "range-not-satisfiable")
    assert reply.headers["content-range"] == "bytes */9"
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("params", "number", "seed"),
    [({}, PACKED, 0), ({"synthetic_images": 7}, PACKED, 0), ({"synthetic_images": 6, "seed": 5}, 6, 5)],
)
def test_packed_images_a_part_of_them_and_others(
    client: TestClient, job_id: str, params: dict[str, int], number: int, seed: int
) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "npz", **params})
    np.testing.assert_array_equal(
        decode_entries(reply.content), drawn(client, number, seed)[: params.get("synthetic_images")]
    )
    assert reply.headers["etag"] == f'"{hashlib.sha256(reply.content).hexdigest()}"'
    assert f'filename="{job_id}-synthetic.npz"' in reply.headers["content-disposition"]


def test_the_earlier_name_of_the_count_is_taken(client: TestClient, job_id: str) -> None:
    images = [
        client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "npz", name: 6}).content
        for name in ("n", "synthetic_images")
    ]
    assert images[0] == images[1]
    assert len(decode_entries(images[0])) == 6
    both = client.get(f"/v1/jobs/{job_id}/synthetic", params={"n": 6, "synthetic_images": 6})
    assert (both.status_code, both.json()["detail"][:26]) == (422, "n is the earlier name of s")
    hint = client.get(f"/v1/jobs/{job_id}/synthetic", params={"number": 6}).json()["detail"]
    assert "Known here: classes, format, per_class, seed, synthetic_images." in hint
    counting = [route for route in routes(client.app) if "synthetic_images" in list_parameters(route)]
    assert len(counting) == 5
    for route in counting:
        address = re.sub(r"{\w+}", "x", route.path)
        assert "no parameter of this name" not in client.get(address, params={"n": 6}).text


def test_parquet_is_the_default(client: TestClient, job_id: str) -> None:
    for n in [None, 5]:
        reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={} if n is None else {"synthetic_images": n})
        table = pq.read_table(io.BytesIO(reply.content))
        assert table.num_rows == (n or PACKED), n
        assert table.column("label").to_pylist()[:5] == [0, 1, 2, 3, 0]


def test_image_folder(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "imagefolder", "synthetic_images": 8})
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        images = [name for name in archive.namelist() if name.endswith(".png")]
    assert len(images) == 8
    assert len({name.split("/")[0] for name in images}) == NUM_CLASSES
    assert reply.headers["content-type"] == "application/zip"
    assert f"{job_id}-synthetic.zip" in reply.headers["content-disposition"]


@pytest.mark.parametrize(
    ("params", "labels"),
    [
        ({"per_class": 2}, [*range(NUM_CLASSES)] * 2),
        ({"per_class": 2, "classes": ["1"]}, [1, 1]),
        ({"synthetic_images": 5, "classes": ["1", "0"]}, [1, 0, 1, 0, 1]),
    ],
)
def test_classes_are_selected(client: TestClient, job_id: str, params: dict[str, Any], labels: list[int]) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"format": "npz", **params})
    with np.load(io.BytesIO(reply.content)) as arrays:
        assert list(arrays["train_labels"]) == labels


def test_more_than_was_packed_is_drawn_and_kept(
    client: TestClient, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"format": "npz", "synthetic_images": PACKED + 20}
    first = client.get(f"/v1/jobs/{job_id}/synthetic", params=params)
    np.testing.assert_array_equal(decode_entries(first.content), drawn(client, PACKED + 20, 0))
    monkeypatch.setattr(synthetic_files, "run_program", None)
    again = client.get(f"/v1/jobs/{job_id}/synthetic", params=params)
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])


def test_who_wants_the_same_at_once_waits_for_one_file(
    client: TestClient, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, made = threading.Barrier(8), list[Path]()

    def make(_request: object, out: Path, _signing: object) -> None:
        made.append(out)
        # Long enough for all others to ask.
        time.sleep(1)
        out.write_bytes(b"images")

    def ask(_: int) -> bytes:
        together.wait(60)
        return client.get(f"/v1/jobs/{job_id}/synthetic").content

    monkeypatch.setattr(synthetic_files, "make_file", make)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {b"images"}
    # As many as may be made at once.
    assert len(made) <= 2


def test_downloads_cost_nothing(client: TestClient, job_id: str, dataset_id: str) -> None:
    before = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    client.get(f"/v1/jobs/{job_id}/synthetic", params={"synthetic_images": 10, "format": "npz", "seed": 1})
    assert client.get(f"/v1/datasets/{dataset_id}/privacy").json() == before


def test_bad_downloads(client: TestClient, job_id: str) -> None:
    for params in [
        {"synthetic_images": 0},
        {"synthetic_images": 2_000_000},
        {"format": "gif"},
        {"seed": -1},
        {"synthetic_images": "all"},
        {"seed": 2**63},
        {"per_class": 0},
        {"per_class": 2, "synthetic_images": 2},
        {"per_class": 600_000},
        {"classes": ["no such class"]},
        {"classes": [""]},
        {"classes": [str(NUM_CLASSES)]},
        {"classes": ["0", "0"]},
    ]:
        reply = client.get(f"/v1/jobs/{job_id}/synthetic", params=params)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), params


def test_too_many_pixels(client: TestClient, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_files, "_MAXIMUM_BYTES", 100 * SIDE * SIDE)
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"synthetic_images": 101})
    assert (reply.status_code, "at most 100 images" in reply.json()["detail"]) == (422, True)


@pytest.mark.parametrize("n", [PACKED + 1, 5])
def test_machine_that_cannot_make_a_file(
    client: TestClient, services: Services, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """The process that draws or slices says what is missing; nothing of what it began is kept."""
    program = tmp_path / "elsewhere" / "torchless.py"
    program.parent.mkdir()
    program.write_text("import sys; sys.stderr.write('Install torch.'); sys.exit(69)")
    monkeypatch.setenv("PYTHONPATH", str(program.parent))
    run = synthetic_files.run_program
    monkeypatch.setattr(synthetic_files, "run_program", lambda _, *rest, **limits: run("torchless", *rest, **limits))
    reply = client.get(f"/v1/jobs/{job_id}/synthetic", params={"synthetic_images": n})
    assert (reply.status_code, reply.json()["code"]) == (503, "worker-unavailable")
    assert reply.json()["detail"] == "Install torch."
    assert list((services.settings.data_dir / "cache").iterdir()) == []


def test_only_the_newest_files_are_kept(
    client: TestClient, services: Services, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_files, "_KEPT_FILES", 2)
    for n in (1, 2, 3):
        client.get(f"/v1/jobs/{job_id}/synthetic", params={"synthetic_images": n, "format": "npz"})
    kept = sorted((path.name.split("-")[1], path.suffix) for path in (services.settings.data_dir / "cache").iterdir())
    assert kept == [("2", ".hashes"), ("2", ".npz"), ("3", ".hashes"), ("3", ".npz")]
