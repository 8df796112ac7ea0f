"""`--fast`: a test is skipped at the moment at which it starts a process of Python, a server or a browser."""

import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_FORKS = ("os.fork", "os.forkpty", "os.posix_spawn")
_SERVERS = ("browser", "postgres", "redis")
_refused: list[str] = []
_errors: list[BaseException] = []
"""What refusals became of; a fixture that several tests share fails with the same error for each of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="skip tests that start a process")


def pytest_configure(config: pytest.Config) -> None:
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if config.getoption("--fast") and not distributes:
        sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    if item.config.getoption("--fast") and any(item.get_closest_marker(name) for name in _SERVERS):
        pytest.skip("starts a server")
    yield from _skipping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    yield from _skipping()


def _skipping() -> Generator[None]:
    """Whatever became of the refusal, which another thread or the product itself may have caught."""
    _refused.clear()
    try:
        yield
    except BaseException as error:
        if _refused:
            _errors.append(error)
        elif error not in _errors:
            raise
        pytest.skip("starts a process")
    if _refused:
        pytest.skip(f"starts a process: {_refused[0]}")


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORKS or (event == "subprocess.Popen" and _runs_ours(arguments)):
        _refused.append(event)
        if threading.current_thread() is threading.main_thread():
            pytest.skip("starts a process", allow_module_level=True)
        # What ends a test would end the event loop of a client that other fixtures still need.
        raise PermissionError("--fast starts no process")


def _runs_ours(arguments: tuple[Any, ...]) -> bool:
    """Python, or a program beside it, also behind another; git and others of the system take milliseconds."""
    programs = (str(arguments[0]), *map(str, arguments[1]))
    return any(Path(program).parent == Path(sys.executable).parent for program in programs)
