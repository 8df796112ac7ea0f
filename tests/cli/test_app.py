"""Version, help, errors and exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from cli.service import DATALENS
from datalens_service import errors
from datalens_service.cli.failures import HELP, ExitCode, get_exit_code
from ports import free_port

Run = Callable[..., Result]
COMMANDS = {
    (): ("serve", "demo", "train", "plan", "prepare", "verify", "version", "jobs", "datasets", "keys", "tenants"),
    ("jobs",): ("submit", "watch", "show", "list", "cancel", "files", "download", "report"),
    ("datasets",): ("upload", "list", "show", "delete"),
    ("keys",): ("create", "list", "revoke"),
    ("tenants",): ("create", "list"),
}
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"


def test_version(datalens: Run) -> None:
    assert datalens("version").stdout == f"{version('datalens-service')}\n"
    assert datalens("--version").stdout == datalens("version").stdout
    assert json.loads(datalens("version", "--json").stdout) == {"version": version("datalens-service")}


@pytest.mark.parametrize("group", COMMANDS)
def test_help_names_every_command(datalens: Run, group: tuple[str, ...]) -> None:
    shown = datalens(*group, "--help").stdout
    assert [name for name in COMMANDS[group] if f" {name} " not in shown] == []


def _leaves() -> Iterator[tuple[str, ...]]:
    for group, names in COMMANDS.items():
        yield from ((*group, name) for name in names if (name,) not in COMMANDS)


@pytest.mark.parametrize("command", list(_leaves()), ids=" ".join)
def test_every_command_has_json_and_is_documented(datalens: Run, command: tuple[str, ...]) -> None:
    assert "--json" in datalens(*command, "--help").stdout
    assert f"datalens {' '.join(command)}" in DOCUMENTATION.read_text(encoding="utf-8")


def test_exit_codes_are_documented(datalens: Run) -> None:
    page = DOCUMENTATION.read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {code.value} |" in page
        assert f"{code.value} " in HELP
    assert "privacy budget exceeded" in " ".join(datalens("--help").stdout.split())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput, 2),
        (errors.InvalidSpec, 2),
        (errors.InvalidDelta, 2),
        (errors.InfeasiblePlan, 2),
        (errors.LowUtility, 2),
        (errors.InvalidDataset, 2),
        (errors.StateConflict, 2),
        (errors.CheckpointMismatch, 2),
        (errors.UploadOffsetMismatch, 2),
        (errors.UploadLocked, 2),
        (errors.ChecksumMismatch, 2),
        (errors.ProtocolMismatch, 2),
        (errors.BudgetExceeded, 3),
        (errors.NotFound, 4),
        (errors.Unauthorized, 4),
        (errors.Forbidden, 4),
        (errors.RateLimited, 5),
        (errors.StoreUnavailable, 5),
        (errors.WorkerUnavailable, 5),
        (errors.RankLost, 5),
        (errors.InsufficientStorage, 5),
        (errors.OutOfMemory, 1),
        (errors.LedgerCorrupt, 1),
        (errors.FileDamaged, 1),
        (errors.ReportIncomplete, 1),
        (errors.StaleLease, 1),
        (errors.JobStopped, 1),
        (errors.DatalensError, 1),
    ],
)
def test_exit_code_of_every_error(error: type[errors.DatalensError], code: int) -> None:
    assert get_exit_code(error.slug) == code


def test_no_error_is_forgotten_above() -> None:
    def below(kind: type[errors.DatalensError]) -> set[type[errors.DatalensError]]:
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    [mark] = test_exit_code_of_every_error.pytestmark
    named = {error for error, _ in mark.args[1]}
    assert {kind for kind in below(errors.DatalensError) if kind.__module__ == errors.__name__} == named


@pytest.mark.parametrize(
    "arguments",
    [("plan",), ("plan", "--epsilon", "much"), ("jobs", "submit"), ("nonsense",), ("version", "--nonsense")],
)
def test_wrong_usage_is_2_and_one_object(datalens: Run, arguments: tuple[str, ...]) -> None:
    result = datalens(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "usage"
    plain = datalens(*arguments)
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert "--help" in plain.stderr


def test_a_data_file_that_is_not_there(datalens: Run) -> None:
    result = datalens("train", "--confirm-classes", "--data", "missing.npz", "--epsilon", 1, "--out", "out", "--json")
    assert result.exit_code == 2
    assert "missing.npz" in json.loads(result.stdout)["error"]["detail"]


def test_nobody_there_is_5(datalens: Run) -> None:
    result = datalens("jobs", "list", "--url", f"http://127.0.0.1:{free_port()}", "--json")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["error"]["code"] == "service-unreachable"


def test_people_get_one_sentence_and_no_traceback(datalens: Run) -> None:
    result = datalens("jobs", "list", "--url", f"http://127.0.0.1:{free_port()}")
    assert result.stdout == ""
    assert "datalens serve" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_entry_point_is_installed_and_light(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom datalens_service.cli.app import app\n"
        "print([m for m in ('torch', 'scipy', 'sqlalchemy', 'fastapi', 'uvicorn') if m in sys.modules])"
    )
    run: Callable[..., Any] = subprocess.run
    assert run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"
    script = Path(sys.executable).with_name("datalens")
    assert run([script, "version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()
    assert run([*DATALENS, "version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()
