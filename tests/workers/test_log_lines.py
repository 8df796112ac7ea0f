"""What workers log: nothing but the events, fields and shapes of values on one list."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from datalens_service import workers
from deployments.deployment import MOMENTS, PATIENCE, Deployment
from privacy_gate.alarm import Alarm
from privacy_gate.log_lines import EVENTS, OUTLINE, check, parsed
from repository import ROOT

LOGGING_ROOMS = (
    ROOT / "datalens_service" / "evaluation" / "evaluate.py",
    ROOT / "datalens_service" / "adapters" / "startup.py",
    *sorted((ROOT / "datalens_service" / "jobs").glob("*.py")),
)
"""Modules of the library that log; their lines are on the list as those of workers are."""
SERVICES = {ROOT / "datalens_service" / room for room in ("adapters", "services", "cli/api_server.py")}
"""They log for the API: the lines of requests, of deliveries and of its end, none of jobs."""
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def calls(module: Path) -> Iterator[tuple[str, set[str]]]:
    """Event and fields of every line that a module logs."""
    for node in ast.walk(ast.parse(module.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id in ("log", "_log"):
            (event,) = node.args
            assert isinstance(event, ast.Constant), f"{module.name}: an event is a constant"
            fields = {keyword.arg or f"**{ast.unparse(keyword.value)}" for keyword in node.keywords}
            yield str(event.value), fields


def test_every_line_in_the_code_of_workers_is_on_the_list() -> None:
    modules = [*Path(workers.__file__).parent.rglob("*.py"), *LOGGING_ROOMS]
    logged = [call for module in modules for call in calls(module)]
    assert {event for event, _ in logged} == EVENTS.keys()
    for event, fields in logged:
        named = {field for field in fields if not field.startswith("**logs.outline(")}
        expected = named | OUTLINE.keys() if named != fields else named
        assert expected - {"job_id"} == EVENTS[event].keys(), event


def test_rooms_that_see_records_log_nothing() -> None:
    loggers = {"logging", "structlog"}
    for module in (ROOT / "datalens_service").rglob("*.py"):
        if module.name == "logs.py" or module in LOGGING_ROOMS or SERVICES & {module, *module.parents}:
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not loggers & {name.partition(".")[0] for name in names}, module


@pytest.mark.parametrize("fails", [False, True])
def test_lines_of_real_processes_are_on_the_list(local: Deployment, fails: bool) -> None:
    local.changes["DATALENS_LOG_LEVEL"] = "debug"
    job = local.submit(MOMENTS)
    if fails:
        for file in (local.folder / "datasets").rglob("*_labels.npy"):
            file.write_bytes(b"not an array")
    supervisor = local.start_warm("datalens_service.workers.process.supervisor")
    local.wait_for_end(job)
    supervisor.terminate()
    supervisor.wait(PATIENCE)

    events = [parsed(line) for line in local.log.read_text().splitlines()]

    for event in events:
        check(event)
    assert {"supervisor started", "job started", "job process started"} <= {event["event"] for event in events}
    assert ("job failed" in {event["event"] for event in events}) == fails


LINE = {"event": "job started", "job_id": f"job_{'0' * 32}", "level": "info", "timestamp": "2026-01-02T03:04:05.6Z"}


@pytest.mark.parametrize(
    "changes",
    [
        {"event": "job started with 17 records"},
        {"classes": [30, 10]},
        {"lease_token": [30, 10]},
        {"job_id": "cat.png"},
        {"event": "job ended", "state": "succeeded, 17 records"},
        {"event": "job failed", "error": "ValueError", "at": ["pixel 17 is 3"]},
        {"event": "job failed", "error": "ValueError: 17"},
        {"event": "job failed", "cause": {"error": "KeyError", "at": [], "message": "cat.png"}},
    ],
)
def test_a_line_that_is_not_on_the_list_is_an_alarm(changes: dict[str, object]) -> None:
    check(dict(LINE))
    with pytest.raises(Alarm):
        check(parsed(json.dumps(LINE | changes)))
