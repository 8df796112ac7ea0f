"""The examples run as they are."""

import os
from pathlib import Path

import pytest

from deployments.fork_servers import start_program

EXAMPLES = Path(__file__).parents[1] / "examples"
MAKES = {
    "train_local.py": {"synthetic.npz", "samples.png", "generator.safetensors"},
    "serve_and_download.py": {"synthetic.parquet", "samples.png", "report.html"},
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(MAKES)


@pytest.mark.parametrize("name", MAKES)
def test_example(name: str, tmp_path: Path) -> None:
    stdout, stderr = 1, 2
    example = start_program([str(EXAMPLES / name), str(tmp_path / "made")], os.environ, stdout, stderr)
    assert example.wait(280) == 0
    assert {path.name for path in (tmp_path / "made").iterdir()} >= MAKES[name]
