"""`datalens serve` as a person starts it: first key, one whole job over HTTP, a clean end."""

import json
import os
import pty
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from cli.service import DATALENS, PATIENCE, RunningService
from datalens_service.client import Client, ClientError
from datalens_service.store.datasets.upload_sessions import partial_files
from deployments.deployment import MOMENTS
from deployments.fork_servers import start_program
from ports import free_port
from processes import wait_until_gone
from tests.data.builders import grey, write_zip

Run = Callable[..., Result]
Json = Callable[..., Any]

REQUEST = {**MOMENTS, "epsilon": 1.0, "synthetic_images": 60}


def test_it_says_where_it_is_and_shows_the_key_once(service: RunningService) -> None:
    said = service.said
    assert said["url"] == f"http://127.0.0.1:{service.port}"
    assert said["data_dir"] == str(service.data_dir)
    assert said["executor"] == "local"
    assert said["api_key"] == service.api_key
    assert said["api_key"].startswith("dlk_")
    assert said["api_key"] not in service.log.read_text()
    assert stat.S_IMODE((service.data_dir / "api-key").stat().st_mode) == 0o600
    assert stat.S_IMODE(service.data_dir.stat().st_mode) == 0o700


def test_the_whole_way_with_the_client(service: RunningService, npz: Path, tmp_path: Path) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(npz, epsilon=2.0, name="halves", class_names=("above", "below"))
        assert dataset.image_schema.class_names == ("above", "below")
        plan = client.plan(dataset.id, REQUEST)
        assert plan.fits
        assert 0.99 < plan.cost.epsilon_at_plan <= 1.0

        seen: list[str] = []
        job = client.submit(dataset.id, REQUEST, idempotency_key="once")
        assert client.submit(dataset.id, REQUEST, idempotency_key="once").id == job.id
        ended = client.wait(job, lambda current: seen.append(current.state), interval=0.1)
        assert (ended.state, ended.error) == ("succeeded", None)
        assert seen[-1] == "succeeded"
        assert ended.privacy.epsilon_spent == pytest.approx(plan.cost.epsilon_at_plan, abs=1e-3)
        assert client.dataset(dataset.id).privacy.epsilon_spent == ended.privacy.epsilon_spent

        _check_downloads(client, job.id, tmp_path)
        report = client.report(job.id)
        assert {measure["name"] for measure in report["measures"]} >= {"accuracy", "ceiling"}
        passed_on = client.report(job.id, audience="releasable")["measures"]
        assert "accuracy" not in {measure["name"] for measure in passed_on}


def _check_downloads(client: Client, job_id: str, folder: Path) -> None:
    packed = client.download(job_id, folder / "packed.npz")
    with np.load(packed, allow_pickle=False) as synthetic:
        assert synthetic["train_images"].shape == (60, 8, 8)
    more = client.download(job_id, folder / "more.npz", synthetic_images=100, seed=3)
    with np.load(more, allow_pickle=False) as synthetic:
        assert len(synthetic["train_labels"]) == 100
    assert client.download_samples(job_id, folder / "samples.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in client.download_report(job_id, folder / "report.html").read_text(encoding="utf-8").lower()
    assert client.download_generator(job_id, folder / "generator.safetensors").stat().st_size > 0


def test_the_whole_way_with_commands(service: RunningService, npz: Path, datalens: Run, datalens_json: Json) -> None:
    dataset = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 2, *service.access)["id"]
    options = "--epsilon 0.5 --preset fast --synthetic-images 30 --no-evaluation --device cpu --priority 2"
    spec_options = (*options.split(), *service.access)
    plan = datalens_json("jobs", "submit", dataset, "--dry-run", *spec_options)
    assert plan["fits"] is True
    submitted = datalens("jobs", "submit", dataset, "--wait", "--json", "--accept-low-utility", *spec_options)
    assert submitted.exit_code == 0, submitted.output
    job = json.loads(submitted.stdout)
    assert (job["state"], job["priority"]) == ("succeeded", 2)
    assert (job["spec"]["method"]["name"], job["spec"]["device"]) == ("pooled_moments", "cpu")
    assert datalens_json("jobs", "watch", job["id"], *service.access)["state"] == "succeeded"
    assert job["id"] in {item["id"] for item in datalens_json("jobs", "list", *service.access)["items"]}
    file = datalens_json("jobs", "download", job["id"], "--format", "parquet", *service.access)
    assert pq.read_table(file["path"]).num_rows == 30
    assert file["audience"] == "anyone"
    assert datalens_json("jobs", "report", job["id"], "--releasable", *service.access)["privacy"]
    listed = datalens_json("jobs", "files", job["id"], *service.access)["items"]
    audiences = {item["name"]: item["audience"] for item in listed}
    assert (audiences["privacy.json"], audiences["account-proof.json"]) == ("anyone", "owner")
    for name, audience in (("privacy.json", "anyone"), ("account-proof.json", "owner")):
        one = datalens_json("jobs", "download", job["id"], "--file", name, *service.access)
        assert (Path(one["path"]).name, one["audience"]) == (f"{job['id']}-{name}", audience)
        assert (Path(one["path"]).stat().st_mode & 0o077 == 0) == (audience == "owner")
        assert datalens("verify", one["path"]).exit_code == 0
    again = datalens("datasets", "upload", "--confirm-classes", npz, *service.access).stdout
    assert "were uploaded before" in again
    assert dataset in again
    shown = datalens("datasets", "show", dataset, *service.access)
    assert f"{job['privacy']['epsilon_spent']} spent" in shown.stdout


def test_refusals_and_their_exit_codes(service: RunningService, npz: Path, datalens: Run, datalens_json: Json) -> None:
    dataset = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 1, *service.access)["id"]
    too_much = datalens("jobs", "submit", dataset, "--epsilon", 50, "--preset", "fast", "--json", *service.access)
    assert too_much.exit_code == 3
    assert json.loads(too_much.stdout)["error"]["budget"]["epsilon_remaining"] == 1
    dry = datalens("jobs", "submit", dataset, "--epsilon", 50, "--preset", "fast", "--dry-run", *service.access)
    assert dry.exit_code == 3
    assert datalens("jobs", "show", "job_none", *service.access).exit_code == 4
    assert datalens("jobs", "list", "--url", service.url, "--api-key", "dlk_wrong").exit_code == 4
    bad = datalens("jobs", "submit", dataset, "--epsilon", 1, "--preset", "fast", "--delta", 0.5, *service.access)
    assert bad.exit_code == 2


def test_an_upload_says_how_it_was_read_and_shares_a_budget_that_is_named(
    service: RunningService, npz: Path, tmp_path: Path, datalens: Run, datalens_json: Json
) -> None:
    arrays = dict(np.load(npz))
    more = {**arrays, "train_images": 255 - arrays["train_images"], "val_images": arrays["test_images"]}
    more["train_images"][0] = 0
    np.savez(tmp_path / "more.npz", **more)
    first = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 2, *service.access)
    assert first["notices"] == []
    options = ("--shares-budget-with", first["id"], "--leave-out-constant-images")
    second = datalens("datasets", "upload", "--confirm-classes", "more.npz", *options, "--json", *service.access)
    assert second.exit_code == 0, second.output
    assert "Notice: ignored_arrays, 1 (val_images): Arrays" in second.stderr
    assert "Notice: constant_images_left_out, 1 (image 0): " in second.stderr
    made = json.loads(second.stdout)
    assert [notice["code"] for notice in made["notices"]] == ["ignored_arrays", "constant_images_left_out"]
    assert made["schema"]["num_units"] == 79
    report = datalens("datasets", "validation", made["id"], *service.access).stdout
    assert "ignored_arrays, 1 (val_images)" in report
    assert "notices" not in datalens_json("datasets", "show", made["id"], *service.access)


def test_a_refused_upload_says_which_files(service: RunningService, tmp_path: Path, datalens: Run) -> None:
    halves = {f"{number % 2}/{number}.png": grey()[: None if number < 30 else -30] for number in range(60)}
    write_zip(tmp_path / "halves.zip", halves)
    refused = datalens(
        "datasets", "upload", "--confirm-classes", "halves.zip", "--epsilon", 1, "--json", *service.access
    )
    problem = json.loads(refused.stdout)["error"]
    assert (refused.exit_code, problem["bad_count"], problem["checked"]) == (2, 30, 60)
    assert len(problem["bad_files"]) == 30
    people = datalens("datasets", "upload", "--confirm-classes", "halves.zip", "--epsilon", 1, *service.access).stderr
    assert people.count(".png\n") == 20
    assert "and 10 more" in people


def test_a_cancelled_job_is_1_for_whoever_watches(service: RunningService, npz: Path, datalens: Run) -> None:
    slow = {
        "method": {"name": "datalens", "num_teachers": 8, "teacher_batch": 4, "images_per_step": 4, "top_k": 8}
        | {"threshold": "none", "steps": 5000},
        "epsilon": 0.1,
    }
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(npz, epsilon=1.0, confirm_classes=True)
        job = client.submit(dataset.id, slow, accept_low_utility=True)
        assert datalens("jobs", "cancel", job.id, "--yes", *service.access).exit_code == 0
        watched = datalens("jobs", "watch", job.id, "--json", *service.access)
        assert watched.exit_code == 1
        assert json.loads(watched.stdout)["state"] == "cancelled"
        with pytest.raises(ClientError) as caught:
            client.cancel(job.id)
    assert (caught.value.slug, caught.value.status) == ("state-conflict", 409)
    assert datalens("jobs", "cancel", job.id, "--yes", *service.access).exit_code == 2


def test_on_this_machine_the_key_file_is_enough(
    service: RunningService, datalens: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert datalens("jobs", "list", "--url", service.url).exit_code == 4
    monkeypatch.setenv("DATALENS_DATA_DIR", str(service.data_dir))
    assert datalens("jobs", "list", "--url", service.url).exit_code == 0


def test_keys_are_made_listed_and_revoked(service: RunningService, datalens: Run, datalens_json: Json) -> None:
    where = ("--data-dir", service.data_dir)
    made = datalens_json("keys", "create", "--name", "colleague", *where)
    listing = ("jobs", "list", "--url", service.url, "--api-key", made["api_key"])
    assert datalens(*listing).exit_code == 0
    listed = datalens_json("keys", "list", *where)["items"]
    assert {item["name"] for item in listed} >= {"first", "colleague"}
    assert made["api_key"] not in json.dumps(listed)
    datalens_json("keys", "revoke", made["id"], "--yes", *where)
    assert datalens(*listing).exit_code == 4
    assert datalens("keys", "revoke", "key_none", "--yes", *where).exit_code == 4
    assert datalens("keys", "list", "--data-dir", "nowhere").exit_code == 4


def test_tenants_get_keys_of_their_own(service: RunningService, datalens: Run, datalens_json: Json) -> None:
    where = ("--data-dir", str(service.data_dir))
    tenant = datalens_json("tenants", "create", "second house", *where)
    assert [item["name"] for item in datalens_json("tenants", "list", *where)["items"]] == ["default", "second house"]
    assert datalens("tenants", "create", "second house", *where).exit_code != 0
    made = datalens_json(
        "keys", "create", "--name", "x", "--tenant", "second house", "--role", "consumer", "--days", "7", *where
    )
    assert (made["tenant"], made["role"]) == (tenant["id"], "consumer")
    assert made["expires_at"] > made["created_at"]
    with Client(service.url, made["api_key"]) as client, pytest.raises(ClientError, match="scope"):
        list(client.jobs())
    assert datalens("keys", "create", "--name", "x", "--tenant", "nowhere", *where).exit_code == 4
    assert datalens("keys", "create", "--name", "x", "--days", 10**7, *where).exit_code == 2
    assert not Path("nowhere").exists()


def test_a_port_in_use_is_bad_input_and_nothing_is_made(service: RunningService, datalens: Run) -> None:
    result = datalens("serve", "--port", service.port, "--data-dir", "data", "--json")
    assert result.exit_code == 2
    assert "--port" in json.loads(result.stdout)["error"]["detail"]
    assert not Path("data").exists()


def test_it_ends_cleanly_and_starts_again_without_a_new_key(tmp_path: Path, npz: Path) -> None:
    first = RunningService(tmp_path / "data")
    with Client(first.url, first.api_key) as client:
        dataset = client.upload_dataset(npz, epsilon=1.0, confirm_classes=True)
    children = first.children()
    assert children
    assert first.stop(signal.SIGINT) == 0
    assert wait_until_gone(children, PATIENCE) == []
    again = RunningService(tmp_path / "data")
    assert again.said["api_key"] is None
    with Client(again.url, again.api_key) as client:
        assert client.dataset(dataset.id).privacy.epsilon_limit == 1.0
    children = again.children()
    assert again.stop(signal.SIGTERM) == 0
    assert wait_until_gone(children, PATIENCE) == []


def hold_a_request_open(running: RunningService) -> socket.socket:
    """A connection on which a body was announced and does not come; the service has begun to answer."""
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE)
    head = (
        "POST /v1/datasets HTTP/1.1\r\nHost: service\r\nExpect: 100-continue\r\n"
        f"Authorization: Bearer {running.api_key}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n"
    )
    connection.sendall(head.encode())
    assert connection.recv(64).startswith(b"HTTP/1.1 100")
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_jobs_hear_of_a_signal_while_a_request_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("DATALENS_DRAIN_SECONDS", "3600")
    running = RunningService(tmp_path / "data")
    children = running.children()
    assert children
    with hold_a_request_open(running):
        running.process.send_signal(number)
        assert wait_until_gone(children, PATIENCE) == []
        assert running.process.poll() is None
    assert running.process.wait(PATIENCE) == 0
    running.stop()


def test_a_request_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_DRAIN_SECONDS", "1")
    running = RunningService(tmp_path / "data")
    children = running.children()
    with hold_a_request_open(running):
        assert running.stop(signal.SIGTERM) == 0
    assert wait_until_gone(children, PATIENCE) == []


def test_what_arrived_of_a_piece_is_there_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is slower than the stop sends the rest to the next service."""
    monkeypatch.setenv("DATALENS_DRAIN_SECONDS", "1")
    running, arrived, whole = RunningService(tmp_path / "data"), 300_000, 1_000_000
    key = {"Authorization": f"Bearer {running.api_key}", "Tus-Resumable": "1.0.0"}
    begun = httpx2.post(f"{running.url}/v1/uploads", headers={**key, "Upload-Length": str(whole)}, timeout=PATIENCE)
    place = begun.headers["Location"]
    head = {
        **key,
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(whole),
    }
    file = partial_files(tmp_path / "data") / place.rpartition("/")[2]
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
        lines = [f"PATCH {place} HTTP/1.1", "Host: service", *(f"{name}: {value}" for name, value in head.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + b"x" * arrived)
        until = time.monotonic() + PATIENCE
        while not file.exists() or file.stat().st_size < arrived:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert running.stop(signal.SIGTERM) == 0
    again = RunningService(tmp_path / "data")
    told = httpx2.head(f"{again.url}{place}", headers=key, timeout=PATIENCE)
    assert told.headers["Upload-Offset"] == str(arrived)
    assert again.stop() == 0


def test_without_its_supervisor_the_service_does_not_go_on(tmp_path: Path) -> None:
    running = RunningService(tmp_path / "data")
    [supervisor, *_] = running.children()
    os.kill(supervisor, signal.SIGKILL)
    assert running.process.wait(PATIENCE) == 5
    assert "supervisor" in running.log.read_text()
    running.stop()


def test_killed_it_leaves_no_supervisor(tmp_path: Path) -> None:
    running = RunningService(tmp_path / "data")
    children = running.children()
    assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    assert wait_until_gone(children, PATIENCE) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_people_see_the_address_and_only_on_a_terminal_the_key(tmp_path: Path, terminal: bool) -> None:
    """Output that is no terminal is collected as a log, for everybody who may read logs."""
    command = [DATALENS[-1], "serve", "--port", str(free_port()), "--data-dir", str(tmp_path / "data")]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with os.fdopen(ours) as screen, Path(os.devnull).open("wb") as nothing:
        process = start_program(command, os.environ, theirs, nothing.fileno())
        os.close(theirs)
        shown = [screen.readline() for _ in range(7 if terminal else 6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    key = (tmp_path / "data" / "api-key").read_text().strip()
    assert sum(key in line for line in shown) == terminal
    assert "http://127.0.0.1" in shown[0]
    assert "api-key" in shown[-1]


def test_it_says_why_it_does_not_start_on_a_damaged_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "ledger.log").write_text("no charge\n")
    command = [*DATALENS, "serve", "--port", str(free_port()), "--data-dir", str(tmp_path / "data"), "--json"]
    # A variable of something else must not stand on stdout, which is JSON.
    other = os.environ | {"DATALENS_API_SERVICE_HOST": "10.0.0.1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=other)
    assert ended.returncode != 0
    assert "ledger log cannot be read" in json.loads(ended.stdout)["error"]["detail"]
