"""All places that name the supported versions of Python name the same: those of the classifiers, which CI tests."""

import re
import tomllib

import pytest

from repository import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MINORS = sorted(
    int(found[1])
    for line in PYPROJECT["project"]["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line))
)
FIRST, LAST = MINORS[0], MINORS[-1]


def test_no_version_between_two_is_left_out() -> None:
    assert list(range(FIRST, LAST + 1)) == MINORS


def test_pip_refuses_all_others() -> None:
    assert PYPROJECT["project"]["requires-python"] == f">=3.{FIRST},<3.{LAST + 1}"


def test_tools_judge_by_the_first() -> None:
    tools = PYPROJECT["tool"]
    assert (tools["ruff"]["target-version"], tools["mypy"]["python_version"]) == (f"py3{FIRST}", f"3.{FIRST}")


@pytest.mark.parametrize("name", ["scripts/environment.sh", "README.md", "docs/deploy.md"])
def test_readers_are_told_the_same(name: str) -> None:
    text = (ROOT / name).read_text()
    assert f"3.{FIRST} to 3.{LAST}" in text
    assert re.findall(r"Python 3\.\d+\b(?! to)", text) == []


def test_the_environment_is_made_with_no_other() -> None:
    script = (ROOT / "scripts" / "environment.sh").read_text()
    assert f"(3, {FIRST}) <= sys.version_info < (3, {LAST + 1})" in script


def test_containers_have_one_of_them() -> None:
    [minor] = re.findall(r"^ARG PYTHON_IMAGE=python:3\.(\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert int(minor) in MINORS
