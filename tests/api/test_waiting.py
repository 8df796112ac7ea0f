"""Whether workers are alive, as jobs, pages, `/readyz` and `/metrics` tell it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from api_builders import browser, claimed, training
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.clock import utc_now
from datalens_service.services import waiting
from datalens_service.services.waiting import explain_job
from datalens_service.store.jobs import attendance, jobs
from datalens_service.store.jobs.attendance import Attendance, Worker
from datalens_service.store.schema.service_tables import WorkerRow
from datalens_service.store.schema.tables import JobRow

LONG_AGO = timedelta(minutes=10)
WORKER = Worker("host:1", gpu=False)


@pytest.fixture
def job_id(client: TestClient, dataset_id: str) -> str:
    return str(client.post("/v1/jobs", json=training(dataset_id)).json()["id"])


def silence_workers(services: Services) -> str:
    """Kill them: nothing was heard from them, and from the process of any job, for a while; since when."""
    died = utc_now() - LONG_AGO
    with services.database.transaction() as session:
        session.execute(update(WorkerRow).values(seen_at=died))
        session.execute(update(JobRow).where(JobRow.lease_until.is_not(None)).values(lease_until=died))
    return f"{died:%Y-%m-%d %H:%M} UTC"


def reason(client: TestClient, job_id: str) -> str | None:
    told: str | None = client.get(f"/v1/jobs/{job_id}").json()["waiting_reason"]
    assert told is None or told in browser(client).get(f"/jobs/{job_id}").text
    return told


def test_all_workers_dead_is_told_by_their_jobs_their_pages_and_readyz(
    client: TestClient, services: Services, dataset_id: str, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SOON", timedelta(0))
    queued = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    attendance.report(services.database, WORKER)
    claimed(services, job_id)
    services.surroundings.look()
    assert client.get("/readyz").json()["degraded"] == {}
    assert "other jobs" in str(reason(client, queued))
    assert reason(client, job_id) is None

    died = silence_workers(services)
    services.surroundings.look()
    assert f"No worker has been alive since {died}" in client.get("/readyz").json()["degraded"]["workers"]
    assert 'datalens_degraded{part="workers"} 1.0' in client.get("/metrics").text
    for each in (job_id, queued):
        assert f"No worker has been alive since {died}" in str(reason(client, each))
    running = client.get(f"/v1/jobs/{job_id}").json()
    assert (running["progress"]["eta_seconds"], running["estimated_finish_at"]) == (None, None)
    assert "left" not in browser(client).get(f"/jobs/{job_id}").text.partition('class="soft eta"')[2][:200]
    again = client.post("/v1/jobs", json=training(dataset_id)).json()
    assert f"No worker has been alive since {died}" in again["waiting_reason"]

    attendance.report(services.database, WORKER)
    services.surroundings.look()
    assert client.get("/readyz").json()["degraded"] == {}
    assert "Another worker" in str(reason(client, job_id))


def test_a_worker_that_was_stopped_is_not_alive(services: Services) -> None:
    attendance.report(services.database, WORKER)
    assert attendance.read_attendance(services.database).alive(None) == (WORKER,)
    attendance.report(services.database, replace(WORKER, ended=True))
    assert attendance.read_attendance(services.database).alive(None) == ()


def test_a_gpu_job_says_at_once_that_no_worker_has_one(client: TestClient, services: Services, dataset_id: str) -> None:
    attendance.report(services.database, WORKER)
    assert client.post("/v1/jobs", json=training(dataset_id)).json()["waiting_reason"] is None
    on_gpu = training(dataset_id, device="gpu")
    assert "GPU" in client.post("/v1/jobs", json=on_gpu).json()["waiting_reason"]
    attendance.report(services.database, Worker("host:2", gpu=True))
    assert client.post("/v1/jobs", json=on_gpu).json()["waiting_reason"] is None


def test_a_worker_that_cannot_start_jobs_says_why(client: TestClient, services: Services, dataset_id: str) -> None:
    attendance.report(services.database, replace(WORKER, trouble="PyTorch is not installed beside it."))
    job = client.post("/v1/jobs", json=training(dataset_id)).json()
    assert "PyTorch is not installed" in job["waiting_reason"]
    attendance.report(services.database, Worker("host:2"))
    assert reason(client, job["id"]) is None


def test_each_queue_has_workers_of_its_own(services: Services, job_id: str) -> None:
    now = utc_now()
    on_gpu = replace(jobs.get(services.database, job_id), queue="gpu", spec={"device": "gpu"})
    on_cpu = replace(on_gpu, queue="cpu", spec={"device": "cpu"})
    there = Attendance(now, ((replace(WORKER, queue="cpu"), now), (Worker("host:2", queue="gpu"), now - LONG_AGO)))
    assert "No worker with a GPU has been alive since" in str(explain_job(on_gpu, {}, there))
    assert explain_job(on_cpu, {}, there) is None
    assert explain_job(on_gpu, {"disk": "It is full."}, there) == "It is full."
    assert explain_job(on_cpu, {}, replace(there, busy=frozenset({"cpu"}))) is not None
    assert "memory" in str(explain_job(replace(on_cpu, attempts=1), {}, there))


def test_a_new_service_has_a_minute_to_start_a_worker(services: Services, job_id: str) -> None:
    job, now = jobs.get(services.database, job_id), utc_now()
    assert explain_job(job, {}, Attendance(now)) is None
    assert "No worker has been at work yet" in str(explain_job(job, {}, Attendance(now + LONG_AGO)))


def test_old_workers_are_forgotten_but_for_the_last_of_each_queue(services: Services) -> None:
    for number in range(4):
        attendance.report(services.database, Worker(f"host:{number}", queue=("cpu", "gpu")[number % 2]))
    with services.database.transaction() as session:
        session.execute(update(WorkerRow).values(seen_at=utc_now() - timedelta(days=2)))
    attendance.report(services.database, replace(WORKER, id="another:1"))
    queues = [worker.queue for worker, _ in attendance.read_attendance(services.database).workers]
    assert sorted(map(str, queues)) == ["None", "cpu", "gpu"]
