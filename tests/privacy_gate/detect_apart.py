"""Detector on what contributions leave behind: a run is the same if each of them has a process that ends with it.

A number that a contribution keeps in its module, a class, a cache, a seed, the environment or the records is lost with
that process. So whatever of it reaches the next question or the script makes another run, over any records.

A fork takes longer than most contributions. So the many questions of a long run are dealt to a few processes: what one
of them keeps reaches no script, and few later questions.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

import numpy as np

from datalens_service.mechanisms.apart import Child, Replies
from datalens_service.mechanisms.confined import confined, confined_items
from datalens_service.methods import driver

from .alarm import expect
from .contribution_cases import CASES, LONG_CASES, ContributionCase
from .contribution_parts import as_bytes
from .detect_release import same_model
from .replay import Recording, record
from .written_files import written_files

_PROCESSES: Final = 5

APART_CASES: tuple[ContributionCase, ...] = tuple(
    case for number, case in enumerate(CASES) if case.method not in [earlier.method for earlier in CASES[:number]]
)
"""The first of each method, and those of many steps: what is left behind is the same for units of any size."""


class Few:
    """A few processes that are forked before there are records, each asked at random, and more than once."""

    def __init__(self) -> None:
        self._children = [Child(_answer) for _ in range(_PROCESSES)]
        self._rng = np.random.default_rng(0)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        (made,) = self.items(_once, function, *arguments)
        return made

    def items(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        return self._children[self._rng.integers(_PROCESSES)].ask(function, *arguments)


def _once(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [function(*arguments)]


def _answer(questions: Iterator[Any], replies: Replies) -> None:
    for function, arguments in questions:
        with replies.ending():
            for item in confined_items(iter(confined(function, *arguments))):
                replies.send(item)


def contributions_leave_nothing_behind(case: ContributionCase) -> Callable[[np.random.Generator], None]:
    """R4: over the same noisy sums, contributions in processes of their own say the same, bit by bit."""

    def detect(rng: np.random.Generator) -> None:
        # Others than those of earlier runs of this process, which may have left something behind.
        dataset = case.dataset(np.random.default_rng([int(rng.integers(2**32)), 1]))
        # First, while nothing of these records can have been left behind.
        with mock.patch.object(driver, "Apart", Few if case in LONG_CASES else driver.Apart):
            apart = record(case.spec, dataset, apart=True)
        with written_files() as left:
            here = record(case.spec, dataset, apart)
        _expect_same(case.name, here, apart)
        expect(left == [], f"{case.name}: a run leaves no file: {left}")

    detect.__name__ = f"nothing is left behind: {case.name}"
    return detect


def _expect_same(name: str, here: Recording, apart: Recording) -> None:
    guarantee = f"{name}: a contribution hands nothing on but its rows"
    expect(here.account.charges == apart.account.charges, guarantee)
    for one, other in zip(here.steps, apart.steps, strict=True):
        expect(one.mechanism == other.mechanism, guarantee)
        expect(as_bytes(one.contributions) == as_bytes(other.contributions), guarantee)
        expect(np.array_equal(one.exact, other.exact), guarantee)
    expect(same_model(here.result.model, apart.result.model), guarantee)
    expect(here.result.extras.individual == apart.result.extras.individual, guarantee)
    expect(here.result.rationale == apart.result.rationale, guarantee)
