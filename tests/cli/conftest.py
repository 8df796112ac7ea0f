"""The command line in this process, a real service beside it, and a small private image set."""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from child_programs import without_processes
from cli.service import random_numbers_of, service
from datalens_service.cli.app import app

__all__ = ["service", "without_processes"]

Run = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once() -> Iterator[None]:
    """A test run types a thousand commands; Typer would build the tree of all commands for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def datalens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in an empty folder; its exit code, stdout and stderr are in the result."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATALENS_URL", "DATALENS_API_KEY", "DATALENS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def datalens_json(datalens: Run) -> Callable[..., Any]:
    """Runs a command with --json, which succeeds; what it printed."""

    def run(*arguments: object) -> Any:
        result = datalens(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run


@pytest.fixture
def npz(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """80 + 20 images of 8×8 pixels in two classes, bright above or bright below; others for every test."""
    rng = random_numbers_of(request.node.nodeid)
    arrays = {}
    for split, n in (("train", 80), ("test", 20)):
        labels = np.arange(n) % 2
        images = rng.integers(0, 60, (n, 8, 8), dtype=np.uint8)
        images[labels == 0, :4] += 150
        images[labels == 1, 4:] += 150
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    path = tmp_path_factory.mktemp("upload") / "halves.npz"
    np.savez_compressed(path, **arrays)
    return path
