"""Rows of the same cell that were measured seed by seed: `python -m benchmarks.utility --first-seed 1 …` writes more.

Lines of other seeds follow the first line of a job in `utility.jsonl`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def pool(row: Row, others: Iterable[Row]) -> Row:
    """A row over its own seeds and those of other results of the same cell, number of images and epochs.

    Raises:
        ValueError: A seed was measured twice.
    """
    same = [row, *(other for other in others if protocol(other) == protocol(row))]
    seeds = [seed for one in same for seed in _seeds(one)]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed of {protocol(row)} was measured twice")
    if len(same) == 1:
        return row
    values = [value for one in same for value in _accuracies(one)]
    return row | {
        "accuracy_mean": round(statistics.mean(values), 2),
        "accuracy_std": round(statistics.stdev(values), 2),
        "accuracies": values,
        "seeds": len(values),
        "commit": ", ".join(dict.fromkeys(one["commit"] for one in same)),
    }


def cell(row: Row) -> tuple[Any, ...]:
    """What a row measures, apart from the number of images and how the classifier was trained."""
    return row["dataset"], row["epsilon"], row["method"], tuple(row["settings"])


def protocol(row: Row) -> tuple[Any, ...]:
    """What rows have in common that may be pooled."""
    return *cell(row), row["synthetic_images"], row.get("epochs"), row.get("judge", 1)


def _seeds(row: Row) -> range:
    first: int = row.get("first_seed", 0)
    return range(first, first + row["seeds"])


def _accuracies(row: Row) -> list[float]:
    """One by one; older results of several seeds do not list them."""
    if "accuracies" in row:
        return list(row["accuracies"])
    if row["seeds"] > 1:
        raise ValueError(f"the accuracies of {protocol(row)} were not kept")
    return [row["accuracy_mean"]]
