"""scripts/environment.sh: which Python it takes, and when it has nothing to do; files that scripts name are there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repository import ROOT, list_files

SCRIPTS = ROOT / "scripts"
FILES = list_files()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that the environment is made from."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "environment.sh", tmp_path / "scripts")
    (tmp_path / "requirements.lock").write_text("# nothing\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 1.0.0\n")
    return tmp_path


def _source(checkout: Path, python: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", "source scripts/environment.sh; echo ready"]
    # No network: whatever it tries to install fails.
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(python), "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def _fake_python(folder: Path, exit_code: int) -> Path:
    path = folder / "python-of-old"
    path.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


def test_another_python_is_refused_before_anything_is_made(checkout: Path) -> None:
    done = _source(checkout, _fake_python(checkout, 1))
    assert done.returncode == 2
    assert "is not Python 3.11 to 3.13" in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_that_is_not_there_is_named(checkout: Path) -> None:
    done = _source(checkout, "/nowhere/python")
    assert done.returncode == 2
    assert "/nowhere/python" in done.stderr


@pytest.mark.parametrize("changed", [None, "requirements.lock", "pyproject.toml", "CHANGELOG.md"])
def test_it_installs_only_what_changed(checkout: Path, changed: str | None) -> None:
    installed = checkout / ".venv" / "installed"
    installed.mkdir(parents=True)
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(checkout / name, installed)
    (installed / "changelog").write_text("1.0.0 \n")
    if changed is not None:
        (checkout / changed).write_text("- another\n## 1.0.0\n")
    done = _source(checkout, _fake_python(checkout, 1))
    assert (done.returncode == 0) == (changed is None)
    assert ("ready" in done.stdout) == (changed is None)


def test_an_installation_that_failed_is_not_taken_for_done(checkout: Path) -> None:
    done = _source(checkout, sys.executable)
    assert done.returncode != 0
    assert "ready" not in done.stdout
    assert not (checkout / ".venv" / "installed").exists()


def _name_paths(script: Path) -> list[str]:
    """Files of the repository that a script names, less patterns."""
    words = re.findall(r"(?<![\w./$*{}-])[\w.-]+(?:/[\w.-]+)+(?![\w/*$}])", script.read_text())
    tracked = {path.split("/")[0] for path in FILES}
    return [word for word in words if word.split("/")[0] in tracked]


@pytest.mark.parametrize(
    "script", [path for path in FILES if path.startswith((".ci/", "scripts/")) and not path.endswith(".py")]
)
def test_every_file_that_a_script_names_is_there(script: str) -> None:
    assert [path for path in _name_paths(ROOT / script) if not (ROOT / path).exists()] == []


def test_names_of_files_are_found() -> None:
    assert "tests/client/test_transport.py" in _name_paths(ROOT / ".ci/matrix")
