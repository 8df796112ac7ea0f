"""All detectors, the cheapest modules first. Each takes random numbers for its inputs and raises `Alarm`."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from . import (
    detect_apart,
    detect_audits,
    detect_contributions,
    detect_directions,
    detect_failures,
    detect_files,
    detect_individual,
    detect_jobs,
    detect_ledger,
    detect_logs,
    detect_noise,
    detect_price,
    detect_release,
    detect_rows,
    detect_sampling,
    detect_shards,
    detect_teachers,
    detect_votes,
)
from .contribution_cases import CASES

Detector = Callable[[np.random.Generator], None]


def _public(module: ModuleType) -> Iterator[Detector]:
    """Functions of random numbers alone that return nothing: those are detectors."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            signature = inspect.signature(value)
            if list(signature.parameters) in (["rng"], ["_rng"]) and signature.return_annotation is None:
                yield value


APART: tuple[Detector, ...] = tuple(map(detect_apart.contributions_leave_nothing_behind, detect_apart.APART_CASES))
"""Of a run with a process for each question: what is compared does not depend on how records fall."""

COMPARISONS: tuple[Detector, ...] = (
    *map(detect_contributions.contributions_of_others_stay_as_they_are, CASES),
    *map(detect_rows.rows_are_functions_of_their_own_records, detect_rows.ROW_CASES),
    detect_teachers.teachers_are_functions_of_their_own_shards,
    detect_contributions.contributions_stay_beyond_a_chunk_of_noise,
    detect_jobs.what_leaves_a_job_follows_from_noisy_sums,
    *APART,
)
"""Of two runs bit by bit: nothing in them is random but the records, so few clean runs repeat them."""

_BY_COST = (
    detect_price, detect_votes, detect_shards, detect_failures, detect_individual, detect_ledger, detect_sampling,
    detect_directions, detect_jobs, detect_files, detect_logs, detect_audits, detect_release, detect_contributions,
    detect_noise,
)  # fmt: skip
_ALONE = [detector for module in _BY_COST for detector in _public(module) if detector not in COMPARISONS]

DETECTORS: tuple[Detector, ...] = (*_ALONE, *COMPARISONS)
