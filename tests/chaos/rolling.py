"""A service that is upgraded while it runs: processes of the version before and of this one on one database."""

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.client import Client
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger.recovery import check_against_log
from datalens_service.store.schema.tables import JOB_FORMAT
from deployments.deployment import PATIENCE, QUICK, VOTES
from deployments.stack import is_ready
from ports import free_port

from .older import BEFORE, OlderStack, unpack
from .served import Figures, read_books

_PAUSE_SECONDS = 0.2
_ENDLESS: dict[str, Any] = {**VOTES, "method": {**VOTES["method"], "steps": 5000, "top_k": 2}}


def rolling_upgrade(folder: Path) -> Figures:
    """Both versions answer all requests, jobs end on workers of the other that know them, older ones stop last."""
    source = folder / "before"
    if not unpack(BEFORE, source):
        return {"passed": True, "not_tried": f"this checkout does not reach back to {BEFORE}: git fetch --unshallow"}
    stack = OlderStack(folder, source)
    try:
        stack.serve()
        figures = _upgrade(stack)
        figures["frozen_accounts"] = len(check_against_log(stack.database))
    finally:
        stack.close()
    *ended, continued = figures["jobs"].values()
    answered = {status for statuses in figures["answers"].values() for status in statuses}
    passed = [books["job"] for books in ended] == ["succeeded"] * 4 and continued["job"] == "cancelled"
    passed = passed and answered == {"200"} and not figures["frozen_accounts"] and figures["worker_code"] == 0
    return figures | {"passed": passed and continued["charged_again"] == 0}


def _upgrade(stack: OlderStack) -> Figures:
    """The steps of an upgrade; every job and every status."""
    older, command = stack.url, stack.api_command()
    assert isinstance(stack.api, subprocess.Popen)
    older_api, older_worker = stack.api, stack.workers[0]
    first = _order(stack, older, QUICK)
    # By the API: the database is still that of the older version.
    with stack.client() as client:
        client.wait(first)
    stack.port = free_port()
    stack.start_api()
    stack.wait(stack.ready)
    found = {"before": stack.wait_for_end(jobs.get(stack.database, first))}
    with _asked(stack, {"older": older, "newer": stack.url}, first) as answers:
        found["submitted to the newer API"] = newer = _submit(stack, stack.url, QUICK)
        if stack.read_job_format() == JOB_FORMAT:
            stack.wait_for_end(newer)
        given = _submit(stack, older, _ENDLESS)
        stack.wait_for_steps(given, 2)
        # A job of a newer format was left to a worker of this version.
        assert stack.job(newer).state.terminal or stack.job(newer).lease_token == 0
        newer_worker = stack.start_worker()
        stack.wait_for_end(newer)
        older_worker.send_signal(signal.SIGTERM)
        code = older_worker.wait(PATIENCE)
        found["submitted to the older API, run by the newer worker"] = last = _submit(stack, older, QUICK)
        # Behind the other in the queue, so the newer worker has to continue that one first.
        _continue(stack, given)
        stack.wait_for_end(last)
    # A process of the older version that is started again works, too.
    older_api.terminate()
    older_api.wait(PATIENCE)
    again = stack.start_older(*command)
    stack.wait(lambda: is_ready(older))
    again.terminate()
    again.wait(PATIENCE)
    found["behind it"] = _submit(stack, stack.url, QUICK)
    assert newer_worker.poll() is None
    found["given back by the older worker, continued by the newer one, cancelled"] = given
    books = {name: read_books(stack, jobs.get(stack.database, job.id)) for name, job in found.items()}
    counted = {name: dict(statuses) for name, statuses in answers.items()}
    return {"answers": counted, "jobs": books, "worker_code": code}


def _continue(stack: OlderStack, given: Job) -> None:
    """Wait until another worker makes further steps of a job, and cancel it."""
    stack.wait(lambda: stack.job(given).lease_token > 1)
    stack.wait_for_steps(given, len(stack.stored_steps(given)) + 2)
    with stack.client() as client:
        client.cancel(given.id)
    stack.wait_for_end(given)


def _submit(stack: OlderStack, url: str, spec: dict[str, Any]) -> Job:
    return jobs.get(stack.database, _order(stack, url, spec))


def _order(stack: OlderStack, url: str, spec: dict[str, Any]) -> str:
    dataset = stack.new_dataset()
    with Client(url, stack.key, timeout=PATIENCE) as client:
        return client.submit(dataset, spec, accept_low_utility=True).id


@contextmanager
def _asked(stack: OlderStack, urls: dict[str, str], job: str) -> Iterator[dict[str, Counter[str]]]:
    """Meanwhile, both APIs are asked for what there is, and for a job that has ended."""
    paths = ("/livez", "/readyz", "/v1/jobs", "/v1/datasets", "/v1/api-keys", "/v1/usage")
    asked = (*paths, *(f"/v1/jobs/{job}{of_it}" for of_it in ("", "/artifacts", "/bundle", "/synthetic")))
    answers = {name: Counter[str]() for name in urls}
    ends = threading.Event()

    def ask(name: str) -> None:
        with httpx2.Client(base_url=urls[name], headers=stack.headers, timeout=PATIENCE) as http:
            while not ends.wait(_PAUSE_SECONDS):
                answers[name].update(str(http.get(path).status_code) for path in asked)

    threads = [threading.Thread(target=ask, args=[name]) for name in urls]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        ends.set()
        for thread in threads:
            thread.join()
