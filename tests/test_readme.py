"""README and the pages of measurements say what the results say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_is_made_from_the_results():
    assert subprocess.run([sys.executable, "-m", "benchmarks.table", "--check"], cwd=ROOT, check=False).returncode == 0


def test_the_page_of_ablations_is_made_from_the_results():
    command = [sys.executable, "-m", "benchmarks.ablation_page", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_the_table_of_noisy_directions_is_made_from_the_results():
    command = [sys.executable, "-m", "benchmarks.direction_page", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
