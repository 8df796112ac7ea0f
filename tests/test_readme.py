"""README says what the results say, and every page and picture it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_is_made_from_the_results():
    assert subprocess.run([sys.executable, "-m", "benchmarks.table", "--check"], cwd=ROOT, check=False).returncode == 0


def test_the_page_of_ablations_is_made_from_the_results():
    command = [sys.executable, "-m", "benchmarks.ablation_page", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_every_link_of_the_pages_leads_somewhere():
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith(("http", "mailto")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken
