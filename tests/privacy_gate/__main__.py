"""The command behind scripts/privacy-gate."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from typing import Any

import torch

from .detect_ledger import migrated
from .gate import CATCHES, CLEAN_RUNS, PLANTS, Finding, caught, clean_run


def main() -> int:
    """Plant every bug, run the clean product, print what was found; 1 if a bug slipped or a clean run alarmed."""
    parser = argparse.ArgumentParser(prog="privacy-gate", description="Plants privacy bugs and requires alarms.")
    parser.add_argument("--json", action="store_true", help="print a JSON summary; the table goes to stderr")
    parser.add_argument("--keep-catches", action="store_true", help=f"write {CATCHES.name}, the order of later runs")
    options = parser.parse_args()
    started = time.monotonic()
    findings = _run_all()
    table = sys.stderr if options.json else sys.stdout
    planted, clean = findings[: len(PLANTS)], findings[len(PLANTS) :]
    for plant, (finding, seconds) in zip(PLANTS, planted, strict=True):
        verdict = f"caught by {finding.detector}" if finding else "SLIPPED"
        table.write(f"{plant.reference:4} {plant.name:52} {seconds:5.1f} s  {verdict}\n")
    if options.keep_catches:
        catches = {plant.name: one.detector for plant, (one, _) in zip(PLANTS, planted, strict=True) if one}
        CATCHES.write_text(json.dumps(catches, indent=1) + "\n")
    for number, (finding, _) in enumerate(clean):
        if finding:
            table.write(f"FALSE ALARM in clean run {number}: {finding.detector}: {finding.message}\n")
    summary = {
        "planted": len(planted),
        "caught": sum(finding is not None for finding, _ in planted),
        "clean_runs": len(clean),
        "false_alarms": sum(finding is not None for finding, _ in clean),
        "seconds": round(time.monotonic() - started, 1),
        "slipped": [plant.name for plant, (finding, _) in zip(PLANTS, planted, strict=True) if finding is None],
    }
    sys.stdout.write((json.dumps(summary) if options.json else _sentence(summary)) + "\n")
    return int(summary["caught"] < summary["planted"] or summary["false_alarms"] > 0)


def _run_all() -> list[tuple[Finding | None, float]]:
    """Plants, then clean runs; a fresh process for each, so that no patch can outlive its run."""
    torch.set_num_threads(1)
    # Made, and imported by torch, before the forks, so that they share it.
    migrated()
    torch.optim.Adam([torch.zeros(1)])
    context = multiprocessing.get_context("fork")
    with context.Pool(len(os.sched_getaffinity(0)), maxtasksperchild=1) as pool:
        # Clean runs first: they take longest.
        return pool.map(timed_run, range(len(PLANTS) + CLEAN_RUNS)[::-1], chunksize=1)[::-1]


def timed_run(number: int) -> tuple[Finding | None, float]:
    started = time.monotonic()
    finding = caught(PLANTS[number]) if number < len(PLANTS) else clean_run(number - len(PLANTS))
    return finding, time.monotonic() - started


def _sentence(summary: dict[str, Any]) -> str:
    return (
        f"{summary['caught']} of {summary['planted']} planted bugs caught, {summary['false_alarms']} false alarms in "
        f"{summary['clean_runs']} clean runs, {summary['seconds']:g} s"
    )


if __name__ == "__main__":
    sys.exit(main())
