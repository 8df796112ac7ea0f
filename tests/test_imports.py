"""The contracts on imports: each is checked, and a line that breaks it is reported under its name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("datalens_service", "api", "workers")

PRIVATE_RELEASED = "What is released knows nothing private"
NO_CIRCLE = "No circle of files or folders"
ONE_WAY = "Imports go one way"
METHODS = "Families of methods build on each other one way"
GENERATORS = "Families of generators build on each other one way"
NO_JOB = "The web API does no job"
NO_DATABASE = "A proof is checked without a database"
BROKEN = [
    (
        PRIVATE_RELEASED,
        "models/generators/gaussian/gaussian.py",
        "from datalens_service.models.teachers import ensemble",
    ),
    (PRIVATE_RELEASED, "models/trainer.py", "from datalens_service.models.teachers.networks import Dense"),
    (PRIVATE_RELEASED, "models/adam.py", "from datalens_service.models.teachers.kernel import KernelTeachers"),
    (NO_CIRCLE, "methods/voting/voting_method.py", "from datalens_service.methods.voting import training_run"),
    (NO_CIRCLE, "methods/sums/moments.py", "from datalens_service.methods.last_layer.guided import Guided"),
    (NO_CIRCLE, "models/adam.py", "from datalens_service.models.trainer import StudentTrainer"),
    (NO_CIRCLE, "store/access/keys.py", "from datalens_service.store.jobs import jobs"),
    (NO_CIRCLE, "evaluation/metrics/reference.py", "from datalens_service.evaluation import evaluate"),
    (NO_CIRCLE, "client/models.py", "from datalens_service.client.responses import parse_model"),
    (NO_CIRCLE, "client/transport.py", "from datalens_service.client.jobs import JobHandle"),
    (NO_CIRCLE, "cli/options.py", "from datalens_service.cli.commands import train"),
    (METHODS, "methods/sums/mixture.py", "from datalens_service.methods.voting.parameters import DataLensParameters"),
    (
        GENERATORS,
        "models/generators/outlines/poses.py",
        "from datalens_service.models.generators.denoiser import denoiser",
    ),
    (NO_JOB, "../api/rest/jobs.py", "from datalens_service.jobs.execute import execute"),
    (ONE_WAY, "cli/commands/serve.py", "from api.main import create_app"),
    (ONE_WAY, "cli/commands/train.py", "from workers.run_job import run_job"),
    (ONE_WAY, "models/teachers/base.py", "from datalens_service import run"),
    (ONE_WAY, "services/pricing.py", "from api.schemas import common"),
    (ONE_WAY, "proof/hash_chain.py", "from datalens_service.store import tables"),
    (NO_DATABASE, "proof/job_proof.py", "import sqlalchemy"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """`lint-imports` with this repository's contracts, on the packages in `folder`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_product_keeps_all_contracts(copy: Path):
    checked = lint(copy)
    assert checked.returncode == 0, checked.stdout
    assert "0 broken" in checked.stdout
    for contract in {contract for contract, _, _ in BROKEN}:
        assert f"{contract} KEPT" in checked.stdout


@pytest.mark.parametrize(("contract", "file", "line"), BROKEN)
def test_a_line_that_breaks_a_contract_is_reported(copy: Path, contract: str, file: str, line: str):
    module = copy / "datalens_service" / file
    module.write_text(f"{module.read_text()}\n{line}\n")
    checked = lint(copy)
    assert checked.returncode == 1
    assert f"{contract} BROKEN" in checked.stdout
