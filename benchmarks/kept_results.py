"""Results that are kept: for each benchmark a file of JSON lines in `benchmarks/results/`, one line per run.

`python -m benchmarks.NAME … >> benchmarks/results/NAME.jsonl` keeps one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.environment import ROOT

RESULTS: Final = ROOT / "benchmarks" / "results"


def read_results(name: str) -> list[dict[str, Any]]:
    """All results of a benchmark, in the order in which they were kept.

    Args:
        name: Of the file, without its ending.
    """
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def read_rows(name: str) -> list[dict[str, Any]]:
    """All rows of such results, each with commit and machine."""
    return [
        {**row, "commit": result["commit"], "machine": result["machine"]}
        for result in read_results(name)
        for row in result["rows"]
    ]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as pages have it."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *rows])


def print_result(result: Mapping[str, Any]) -> None:
    """Print a result as one line."""
    print(json.dumps(result, ensure_ascii=False))
