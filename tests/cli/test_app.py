"""Version, help, errors and exit codes; and bars of phases, of which none stands still while another moves."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import Result

from cli.commands import commands
from cli.service import DATALENS
from datalens_service.base import errors
from datalens_service.cli import options
from datalens_service.cli.failures import HELP, ExitCode, get_exit_code
from datalens_service.cli.progress import PhaseBars
from datalens_service.data.preparation_settings import Colour, Fit

Run = Callable[..., Result]
PAGE = " ".join(Path(__file__).parents[2].joinpath("docs", "cli.md").read_text(encoding="utf-8").split())


def test_version(datalens: Run) -> None:
    assert datalens("version").stdout == f"{version('datalens-service')}\n"
    assert datalens("--version").stdout == datalens("version").stdout
    assert json.loads(datalens("version", "--json").stdout) == {"version": version("datalens-service")}


def test_every_command_has_json_and_is_documented() -> None:
    for name, command in commands():
        assert any("--json" in parameter.opts for parameter in command.params), name
        assert f"datalens {name}" in PAGE


def test_exit_codes_are_documented(datalens: Run) -> None:
    for code in ExitCode:
        assert f"| {code.value} |" in PAGE
        assert f"{code.value} " in HELP
    assert "privacy budget exceeded" in " ".join(datalens("--help").stdout.split())


ERRORS = {
    1: "ContributionFailed DatalensError FileDamaged JobStopped LedgerCorrupt OutOfMemory ReportIncomplete StaleLease",
    2: "CheckpointMismatch ChecksumMismatch InfeasiblePlan InvalidDataset InvalidDelta InvalidInput InvalidSpec "
    "LowUtility PersonsInBothSplits ProtocolMismatch QuotaExceeded StateConflict UnreachableAccuracy UploadLocked "
    "UploadOffsetMismatch",
    3: "BudgetExceeded",
    4: "Forbidden NotFound Unauthorized",
    5: "GpuMemoryTaken InsufficientStorage RankLost RateLimited StoreUnavailable WorkerUnavailable",
}


def test_exit_code_of_every_error() -> None:
    kinds = {name: kind for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__}
    codes = {name: code for code, names in ERRORS.items() for name in names.split()}
    assert {name: get_exit_code(kind.slug) for name, kind in kinds.items()} == codes


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


HEAVY = ("torch", "sqlalchemy", "alembic", "fastapi", "uvicorn", "httpx2", "matplotlib")


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], (*HEAVY, "numpy", "scipy", "pydantic", "PIL")),
        (["plan", "--data", "DATA", "--preset", "fast", "--epsilon", "1"], HEAVY),
    ],
)
def test_a_command_loads_what_it_needs_alone(words: list[str], absent: tuple[str, ...], npz: Path) -> None:
    typed = ["datalens", *(str(npz) if word == "DATA" else word for word in words)]
    code = (
        f"import sys\nsys.argv = {typed!r}\nfrom datalens_service.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        f"print([m for m in {absent!r} if m in sys.modules], file=sys.stderr)"
    )
    run: Callable[..., Any] = subprocess.run
    assert run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stderr.strip() == "[]"


def test_choices_that_stand_in_options_are_those_of_the_models() -> None:
    assert get_args(options.FitName) == tuple(Fit)
    assert get_args(options.ColourName) == tuple(Colour)


def test_the_entry_point_is_installed(tmp_path: Path) -> None:
    run: Callable[..., Any] = subprocess.run
    script = Path(sys.executable).with_name("datalens")
    assert run([script, "version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()
    assert run([*DATALENS, "version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()


def test_a_phase_with_nothing_to_do_leaves_no_bar_behind() -> None:
    bars = PhaseBars()
    for phase, value, maximum in (("training", 3, 4), ("fitting", 0, 100), ("drawing", 5, 5), ("packaging", 1, 8)):
        bars.observe(phase, value, maximum)
    shown = {task.description: task for task in bars.tasks if task.visible}
    assert list(shown) == ["training", "drawing", "packaging"]
    # What ended early does not count on.
    assert shown["training"].stop_time is not None
    assert shown["packaging"].stop_time is None
