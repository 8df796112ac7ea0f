"""Benchmarks that need servers: their reduced form runs, and says what it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_reduced_benchmark_of_the_service(tmp_path: Path) -> None:
    # In a process of its own: it starts an event loop, and the tests of pages leave theirs running in this one.
    command = [sys.executable, "-m", "benchmarks.service", "--reduced", "--out", str(tmp_path / "report.json")]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(printed) == report
    for name in ("submit", "status"):
        assert report[name]["service"]["requests_per_second"] > 0
        assert report[name]["plain"]["p95_ms"] > 0
    assert report["download"]["ratio"] > 0
    # Refused once it was there: it is no data set.
    assert (report["upload"]["status"], report["upload"]["mib"]) == (422, 4)
    assert report["goals_met"].keys() == {"submit", "status", "download", "upload"}
