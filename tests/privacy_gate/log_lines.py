"""What workers may log: every event with its fields, and what their values may look like.

A line that is not on the list is an alarm. Whoever adds one says here which values it may have; none may depend on
private records.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from datalens_service.store.jobs.jobs import JobState

from .alarm import expect

_ID: Final = r"job_[0-9a-f]{32}"
_NUMBER: Final = r"\d{1,10}"
_CLASS: Final = r"[A-Z]\w{2,60}"
_SENTENCES: Final = r"[A-Z][^\n]{1,400}"
"""The detail of an error of ours: written by hand, see `DatalensError`."""
_PLACES: Final = r"\[(\"[\w./<>+ -]+:\d+ [\w<>]+\"(, )?)*\]"
_WORDS: Final = r"[a-z-]{3,40}"
_METRIC: Final = r"[a-z_0-9]{3,40}"
OUTLINE: Final = {"error": r"\w[\w.<>]{2,80}", "at": _PLACES, "cause": r"\{.*\}"}
_STATE: Final = "|".join(state.value for state in JobState)

ALWAYS: Final[Mapping[str, str]] = {
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z",
    "level": "debug|info|warning|error",
    "job_id": _ID,
}
"""Fields that any line may have."""

_OF_JOBS: Final[Mapping[str, Mapping[str, str]]] = {
    "job is held or has ended, nothing to do": {},
    "job started": {"lease_token": _NUMBER},
    "job ended": {"state": _STATE},
    "job failed": {"problem": _WORDS, **OUTLINE},
    "job is given back": {"reason": _CLASS},
    "job was taken over": {},
    "job process failed": {"detail": _SENTENCES, **OUTLINE},
    "there is no such job": {},
    "database unavailable": {"detail": _SENTENCES},
    "no time stamp of the account's head": {"detail": _SENTENCES},
    "a figure failed": {"figure": _METRIC, **OUTLINE},
    "lease lost, process ends": {"lease_token": _NUMBER},
    "ranks of the job": {"ranks": _NUMBER, "allowed": _NUMBER},
    "job is too small for its ranks, one runs it": {"max_ranks": _NUMBER},
    "rank lost, process ends": {},
    "rank lost, job will be resumed": {},
    "rank failed": {"rank": _NUMBER, "detail": rf"{_SENTENCES}|null", **OUTLINE},
    "job not watched, database unavailable": {},
    "request not noticed between two steps, process ends": {},
}

_OF_SUPERVISORS: Final[Mapping[str, Mapping[str, str]]] = {
    "supervisor started": {"max_running_jobs": _NUMBER, "database": _WORDS},
    "supervisor stopped": {},
    "supervisor cannot start": {"problem": _WORDS, "detail": _SENTENCES},
    "unknown variable, ignored": {"variable": r"DATALENS_\w{1,100}"},
    "messages cannot be received, jobs are still taken": OUTLINE,
    "worker cannot start": {"problem": _WORDS, "detail": _SENTENCES},
    "parent process is gone, supervisor stops": {"parent": _NUMBER},
    "database, disk or GPU unavailable, no job is started": {"detail": _SENTENCES},
    "worker cannot note that it is alive": OUTLINE,
    "no job is started, trying again": OUTLINE,
    "job is no longer supervised": OUTLINE,
    "no job process can start": {"detail": _SENTENCES},
    "job process cannot start": {"detail": _SENTENCES},
    "job process started": {"pid": _NUMBER},
    "job process ended early": {"pid": _NUMBER, "exit_code": r"-?\d{1,3}"},
    "job process lost its lease, killed": {"pid": _NUMBER},
    "lease not ended, database unavailable": {},
    "worker lost": {"state": _STATE, "attempts": _NUMBER},
}

EVENTS: Final[Mapping[str, Mapping[str, str]]] = {**_OF_JOBS, **_OF_SUPERVISORS}
"""Further fields of every event that workers log."""


def parsed(line: str) -> dict[str, Any]:
    """A line as an event with its fields."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    expect(isinstance(event, dict) and "event" in event, "whatever a job prints is a log line")
    return dict(event)


def check(event: dict[str, Any]) -> None:
    """Sound the alarm for an event, a field or a value that is not on the list."""
    name = event["event"]
    expect(name in EVENTS, "workers log no other events than those on the list")
    allowed = {**ALWAYS, **EVENTS[name]}
    for field, value in event.items():
        if field == "event":
            continue
        expect(field in allowed, f"{name!r} has no other fields than those on the list")
        if field == "cause":
            check_outline(value)
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        expect(re.fullmatch(allowed[field], text), f"{field!r} of {name!r} has values of its shape only")


def check_outline(outline: Any) -> None:
    """Of the cause of an error: its type, its places, and its own cause."""
    expect(isinstance(outline, dict) and outline.keys() <= OUTLINE.keys(), "causes have type, places and cause only")
    for field in ("error", "at"):
        text = outline[field] if field == "error" else json.dumps(outline[field])
        expect(re.fullmatch(OUTLINE[field], text), f"{field!r} of a cause has values of its shape only")
    if "cause" in outline:
        check_outline(outline["cause"])
