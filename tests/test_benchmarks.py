"""Benchmarks that need servers: their reduced form runs, and says what it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import published
from benchmarks.table import rows
from tests.data.hostile import CORPUS

ROOT = Path(__file__).parents[1]


def test_reduced_benchmark_of_the_service(tmp_path: Path) -> None:
    # In a process of its own: it starts an event loop, and the tests of pages leave theirs running in this one.
    command = [sys.executable, "-m", "benchmarks.service", "--reduced", "--out", str(tmp_path / "report.json")]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(printed) == report
    small = {"submit", "status", "list", "plan", "small_download"}
    for name in small:
        assert report[name]["service"]["requests_per_second"] > 0
        assert report[name]["plain"]["p95_ms"] > 0
    assert report["download"]["ratio"] > 0
    # Refused once it was there: it is no data set.
    assert (report["upload"]["status"], report["upload"]["mib"]) == (422, 4)
    assert report["goals_met"].keys() == small | {"download", "upload"}


def test_readers_of_hostile_files_stay_small(tmp_path: Path) -> None:
    chosen = ["zip bomb", "tar.gz bomb", "Parquet: one value, half a million rows", "Parquet: pages that inflate"]
    for number, name in enumerate(chosen):
        (tmp_path / str(number)).write_bytes(CORPUS[name].make())
    (tmp_path / "names.json").write_text(json.dumps(chosen))
    # A process's peak counts from that of the one that started it, and this one is large.
    command = [sys.executable, "-m", "benchmarks.hostile", "measure", str(tmp_path)]
    files = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["files"]
    assert all(files[name]["refused"] for name in chosen)
    assert {name: files[name]["mebibytes"] for name in chosen if files[name]["mebibytes"] >= 256} == {}


def test_every_rival_has_a_figure_of_its_own_in_every_cell() -> None:
    ours = [line for line in published.accuracies(rows()) if line[1] == published.OURS]
    measured = {row["row"]: row["method"] for row in rows() if row["row"] in published.NAMES}
    cells = {line[0]: line[2:] for line in ours}
    assert {name for name in published.NAMES if not all(cells[measured[name]])} == set()
    fidelity = {line[0]: line[2:] for line in published.fids(rows())}
    assert {name for name in published.NAMES if not all(fidelity[measured[name]])} == set()
