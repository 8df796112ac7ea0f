"""Nothing of a whole job leaves with a finer time than docs/privacy.md ("Times") allows."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from datalens_service.api.main import create_app
from datalens_service.base.progress import Phase
from datalens_service.base.settings import Settings
from datalens_service.jobs import job_watch
from datalens_service.jobs.job_watch import JobWatch
from datalens_service.jobs.private_folder import PrivateFolder
from datalens_service.store.access import keys, webhooks
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.leases import Lease, Requests
from datalens_service.store.schema.tables import JobRow
from deployments.deployment import MOMENTS, Deployment, lamps

INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
FRACTION = re.compile(r"\d\d:\d\d:\d\d\.\d")
SECONDS = re.compile(r"\d\d:\d\d:(?!00)\d\d")


SECOND = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def submitted(local: Deployment, http: TestClient, dataset_id: str = "", epsilon: float = 2.0) -> str:
    """Id of a job."""
    request = {"dataset_id": dataset_id or local.upload(lamps()).id, "spec": {**MOMENTS, "epsilon": epsilon}}
    request["accept_low_utility"] = True
    reply = http.post("/v1/jobs", json=request)
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def submitted_within_a_second(local: Deployment, http: TestClient, count: int) -> list[str]:
    """Ids of jobs on one data set, a millisecond apart, oldest first."""
    dataset_id = local.upload(lamps()).id
    made = [submitted(local, http, dataset_id, 0.1) for _ in range(count)]
    with local.database.transaction() as session:
        for number, job_id in enumerate(made):
            session.get_one(JobRow, job_id).created_at = SECOND + timedelta(milliseconds=number)
    return made


@pytest.fixture
def service(local: Deployment) -> Iterator[TestClient]:
    """A service on the deployment's database, with a webhook and a key for the owner."""
    settings: Settings = local.settings
    with TestClient(create_app(settings), base_url="http://service") as http:
        _, plain = keys.create(local.database, "owner")
        http.headers["Authorization"] = f"Bearer {plain}"
        webhooks.create(local.database, "default", "https://example.org/hook", ["job.created", "job.succeeded"])
        assert http.post("/sign-in", data={"key": plain}, follow_redirects=False).status_code == 303
        yield http


def succeeded(local: Deployment, http: TestClient) -> str:
    """A whole job, its row with the microseconds that a slow clock might hide."""
    job = jobs.get(local.database, submitted(local, http))
    local.execute(job)
    with local.database.transaction() as session:
        row = session.get_one(JobRow, job.id)
        row.created_at = row.created_at.replace(microsecond=123_456)
        row.finished_at = (row.finished_at or row.created_at).replace(microsecond=654_321)
    return job.id


def answers(http: TestClient, local: Deployment, job_id: str) -> Iterator[tuple[str, str]]:
    """Text of every answer about a job, its data set, files, events, messages and pages; headers included."""
    job = http.get(f"/v1/jobs/{job_id}").json()
    base, dataset = f"/v1/jobs/{job_id}", f"/v1/datasets/{job['dataset_id']}"
    hook = http.get("/v1/webhooks").json()["items"][0]["id"]
    paths = [
        *(base, f"{base}/events", f"{base}/artifacts", "/v1/jobs?limit=1", "/v1/datasets?limit=1", dataset),
        *(f"{dataset}/privacy", f"{dataset}/privacy/entries", "/v1/generators", f"{base}/bundle"),
        *(f"{base}/report", f"{base}/report?format=html", f"{base}/report?audience=releasable", f"{base}/samples.png"),
        *("/v1/webhooks", f"/v1/webhooks/{hook}/deliveries", "/v1/api-keys", "/v1/audit", "/v1/usage", "/metrics"),
        *("/", "/jobs", f"/jobs/{job_id}", f"/datasets/{job['dataset_id']}", "/releases"),
        f"/v1/generators/{released_models.build_id(job_id)}",
    ]
    for path in paths:
        reply = http.get(path)
        assert reply.status_code == 200, (path, reply.status_code, reply.text[:200])
        text = reply.text if not reply.headers["content-type"].startswith("image/") else ""
        yield path, text + json.dumps({name: value for name, value in reply.headers.items() if name != "date"})
    with http.stream("GET", f"{base}/events", headers={"Accept": "text/event-stream"}) as reply:
        yield "stream", "".join(reply.iter_text())
    for file in local.artifacts.list_artifacts(job_id):
        if file.name.endswith((".json", ".html")):
            yield file.name, file.path.read_text()


def test_no_time_of_a_whole_job_leaves_with_a_fraction_of_a_second(local: Deployment, service: TestClient) -> None:
    job_id = succeeded(local, service)
    seen = 0
    for path, text in answers(service, local, job_id):
        assert FRACTION.search(text) is None, (path, FRACTION.search(text))
        seen += len(INSTANT.findall(text))
    assert seen > 50


def test_times_of_private_steps_are_whole_minutes(local: Deployment, service: TestClient) -> None:
    job_id = succeeded(local, service)
    job = service.get(f"/v1/jobs/{job_id}").json()
    events = service.get(f"/v1/jobs/{job_id}/events", params={"limit": 100}).json()["items"]
    public = {event["created_at"] for event in events if event["type"] != "job.progress"}
    progress = [event["created_at"] for event in events if event["type"] == "job.progress"]
    entries = service.get(f"/v1/datasets/{job['dataset_id']}/privacy/entries").json()["items"]
    files = service.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]
    modified = service.get(f"/v1/jobs/{job_id}/samples.png").headers["last-modified"]
    assert progress
    private = [at for at in progress if at not in public]  # none is before the public event that came before it
    for at in (*private, *(entry["at"] for entry in entries), *(file["created_at"] for file in files)):
        assert SECONDS.search(at) is None, at
    assert parsedate_to_datetime(modified).second == 0
    for name in ("privacy.json", "report.json", "report-releasable.html"):
        text = local.artifacts.get(job_id, name).path.read_text()
        assert not [found for found in INSTANT.findall(text) if SECONDS.search(found)], name


def test_messages_of_webhooks_are_dated_to_the_second(local: Deployment, service: TestClient) -> None:
    succeeded(local, service)
    hook = service.get("/v1/webhooks").json()["items"][0]["id"]
    sent = webhooks.list_deliveries(local.database, hook).items
    assert sent
    for one in sent:
        assert FRACTION.search(one.payload) is None
        assert one.created_at.microsecond == one.next_attempt_at.microsecond == 0


def test_a_cursor_holds_whole_seconds_and_rows_of_one_second_keep_their_order(
    local: Deployment, service: TestClient
) -> None:
    made = submitted_within_a_second(local, service, 5)
    shown, after = [], None
    while True:
        reply = service.get("/v1/jobs", params={"limit": 2, **({"after": after} if after else {})})
        assert reply.status_code == 200, reply.text
        page = reply.json()
        shown += [item["id"] for item in page["items"]]
        after = page["next_cursor"]
        if after is None:
            break
        assert FRACTION.search(base64.urlsafe_b64decode(after).decode()) is None
    assert shown == made[::-1]


def test_a_row_that_is_gone_leaves_nothing_out(local: Deployment, service: TestClient) -> None:
    made = submitted_within_a_second(local, service, 3)
    gone = base64.urlsafe_b64encode(f"{SECOND.isoformat()}|job_gone".encode()).decode()
    assert [one.id for one in jobs.list_jobs(local.database, cursor=gone).items] == made[::-1]


def test_a_filter_by_time_tells_no_more_than_the_second(local: Deployment) -> None:
    job = local.submit(MOMENTS)
    with local.database.transaction() as session:
        session.get_one(JobRow, job.id).created_at = SECOND + timedelta(microseconds=500_000)
    for microseconds in (1, 499_999, 500_001, 999_999):
        between = SECOND + timedelta(microseconds=microseconds)
        assert jobs.list_jobs(local.database, JobFilter(created_after=between)).items == ()
        assert len(jobs.list_jobs(local.database, JobFilter(created_before=between)).items) == 1
    assert len(jobs.list_jobs(local.database, JobFilter(created_after=SECOND)).items) == 1


def test_progress_within_a_phase_is_published_by_a_clock_and_not_by_steps(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = local.claim(local.submit(MOMENTS))
    private = PrivateFolder(local.folder, lease)
    published: list[tuple[str, int]] = []

    def publish(_database: Database, _lease: Lease, phase: Phase, value: int, _maximum: int) -> Requests:
        published.append((phase, value))
        return Requests(cancel=False, pause=False)

    monkeypatch.setattr(job_watch.leases, "progress", publish)
    monkeypatch.setattr(job_watch, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(job_watch, "PROGRESS_SECONDS", 1000.0)
    with JobWatch(local.database, private, lease) as observe:
        for step in range(40):
            observe(Phase.TRAINING, step, 1000)
        assert published == [("training", 0)]
        observe(Phase.EVALUATING, 0, 10)
        assert published == [("training", 0), ("evaluating", 0)]
    monkeypatch.setattr(job_watch, "PROGRESS_SECONDS", 0.1)
    with JobWatch(local.database, private, lease) as observe:
        for step in range(40):
            observe(Phase.TRAINING, step, 1000)
        local.wait(lambda: published[-1] == ("training", 39))
    assert not [one for one in threading.enumerate() if one.name == "watch"]


def test_the_clock_is_that_of_the_rule() -> None:
    assert job_watch.PROGRESS_SECONDS >= 10
    rule = Path(__file__).parents[2].joinpath("docs", "privacy.md").read_text()
    assert "| every ten seconds |" in rule
