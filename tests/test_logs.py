"""Lines of a log stay whole, whoever else writes to the same file."""

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from datalens_service.base import logs


@pytest.fixture
def configured() -> Iterator[None]:
    """The log of a process, taken back afterwards."""
    before = structlog.get_config()
    logger = logging.getLogger("celery")
    level = logger.level
    logs.configure("info")
    yield
    logger.setLevel(level)
    structlog.configure(**before)


class Writes(io.StringIO):
    """Standard error that keeps each write by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return len(text)


@pytest.mark.usefixtures("configured")
def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Writes()
    monkeypatch.setattr(sys, "stderr", stream)
    structlog.get_logger().info("begun", job_id="job_1")
    (line,) = stream.parts
    assert line.endswith("\n")
    assert json.loads(line)["job_id"] == "job_1"


@pytest.mark.parametrize("buffering", [1, 4096, None])
@pytest.mark.usefixtures("configured")
def test_a_log_without_room_or_stream_ends_nothing(monkeypatch: pytest.MonkeyPatch, buffering: int | None) -> None:
    # It cannot be closed as others are.
    full = None if buffering is None else Path("/dev/full").open("w", buffering=buffering)  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", full)
    structlog.get_logger().error("job process ended early")
    logging.getLogger("library").error("a message")
    monkeypatch.undo()
    with contextlib.suppress(OSError, AttributeError):
        full.close()
