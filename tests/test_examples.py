"""The examples run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.fork_servers import warm_environment

EXAMPLES = Path(__file__).parents[1] / "examples"
MAKES = {
    "train_local.py": {"synthetic.npz", "samples.png", "generator.safetensors"},
    "serve_and_download.py": {"synthetic.parquet", "samples.png", "report.html"},
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(MAKES)


@pytest.mark.parametrize("name", MAKES)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / name, tmp_path / "made"]
    subprocess.run(command, env=os.environ | warm_environment(), check=True, timeout=280)
    assert {path.name for path in (tmp_path / "made").iterdir()} >= MAKES[name]
