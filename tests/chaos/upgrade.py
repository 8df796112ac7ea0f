"""An installation of version 1.0.0 that is upgraded in place while its API and its worker run on."""

import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.proof.proof_verification import verify
from datalens_service.store.jobs import jobs
from datalens_service.store.ledger.recovery import check_against_log
from deployments.deployment import PATIENCE, QUICK
from deployments.stack import CeleryStack
from ports import free_port

from .older import VERSION_1, OlderStack, unpack
from .served import LONG, Figures, read, read_books

_BESIDE_SECONDS = 15.0
_PATHS = ("/livez", "/readyz", "/v1/jobs", "/v1/datasets", "/v1/api-keys", "/v1/usage")


def upgrade(folder: Path) -> Figures:
    """An API and a worker of 1.0.0 go on while an API of this version migrates under them."""
    source = folder / "older"
    if not unpack(VERSION_1, source):
        return {"passed": True, "not_tried": "this checkout does not reach back to version 1.0.0"}
    stack = OlderStack(folder, source)
    try:
        stack.serve()
        before = _Installation(stack)
        figures = _run_both(stack) | {"changed": before.compare()}
        books = [read_books(stack, jobs.get(stack.database, job)) for job in before.job_ids]
        later = read_books(stack, stack.order(QUICK))
        frozen = len(check_against_log(stack.database))
    finally:
        stack.close()
    ended = [one["job"] for one in [*books, later]]
    figures |= {"jobs": ended, "charged_again": books[1]["charged_again"], "frozen_accounts": frozen}
    passed = not figures["changed"] and ended == ["succeeded"] * 3 and not frozen and figures["code"] != 0
    return figures | {"passed": passed and figures["answers"]["newer"].keys() == {"200"}}


class _Installation:
    """What version 1.0.0 shows of a data set, an ended job, its files, and an address for one of them.

    Attributes:
        job_ids: Of the ended job, and of one that runs.
    """

    def __init__(self, stack: CeleryStack) -> None:
        self._stack = stack
        dataset = stack.new_dataset()
        with stack.client() as client:
            ended = client.submit(dataset, QUICK).wait().id
            self.job_ids = (ended, client.submit(stack.new_dataset(), LONG).id)
            files = client.files(ended)
        job = f"/v1/jobs/{ended}"
        signing = f"{job}/artifacts/{next(file.name for file in files if file.audience == 'anyone')}:sign"
        signed = httpx2.post(f"{stack.url}{signing}", headers=stack.headers, timeout=60).json()["url"]
        self._addresses = [job, f"/v1/datasets/{dataset}", f"/v1/datasets/{dataset}/privacy", signed]
        self._addresses += [f"{job}/bundle", *(f"{job}/artifacts/{file.name}" for file in files)]
        stack.wait(lambda: read(stack, f"/v1/jobs/{self.job_ids[1]}")["state"] == "running")
        self._seen = self._look()

    def compare(self) -> list[str]:
        """What is not as it was: addresses, and members of what they answered then."""
        now = self._look()
        return [
            f"{at} {name}" for at, was in self._seen.items() for name in was if not _has(now[at].get(name), was[name])
        ]

    def _look(self) -> dict[str, dict[str, Any]]:
        return {address: self._read(address) for address in self._addresses}

    def _read(self, address: str) -> dict[str, Any]:
        headers = {} if "signature=" in address else self._stack.headers
        answer = httpx2.get(f"{self._stack.url}{address}", headers=headers, timeout=60)
        if address.endswith("/bundle"):
            return {"holds": verify(answer.content).holds}
        if answer.headers["Content-Type"] == "application/json" and "/artifacts/" not in address:
            return dict(answer.json())
        return {"status": answer.status_code, "sha256": hashlib.sha256(answer.content).hexdigest()}


def _has(now: Any, was: Any) -> bool:
    """Whether all that was there is, at every depth; members may have been added."""
    if isinstance(was, dict):
        return isinstance(now, dict) and all(_has(now.get(name), value) for name, value in was.items())
    return bool(now == was)


def _run_both(stack: OlderStack) -> Figures:
    """Start what is new, ask both APIs for a while, and replace the worker; what 1.0.0 says when it starts again."""
    older = stack.url
    stack.port = free_port()
    stack.start_api()
    stack.wait(stack.ready)
    answers = {"older": Counter[str](), "newer": Counter[str]()}
    until = time.monotonic() + _BESIDE_SECONDS
    while time.monotonic() < until:
        for name, url in (("older", older), ("newer", stack.url)):
            answers[name].update(_ask(url, stack.headers))
    stack.kill_worker(stack.workers[0])
    stack.start_worker()
    written = stack.log.stat().st_size
    again = stack.start_older("migrations")
    again.wait(PATIENCE)
    said = stack.log.read_bytes()[written:].decode().splitlines()
    return {
        "answers": {name: dict(found) for name, found in answers.items()},
        "older": said[-1],
        "code": again.returncode,
    }


def _ask(url: str, headers: dict[str, str]) -> list[str]:
    return [str(httpx2.get(f"{url}{path}", headers=headers, timeout=60).status_code) for path in _PATHS]
