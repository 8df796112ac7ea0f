"""Detector on contributions themselves: a row is a function of one record, or unit, in any company and at any size.

Behind the wall a contribution is a pure function, so it need not wait for a job: what a short job asked once is asked
again of more rows than any block of the product has, in parts, and in another order.
"""

import inspect
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from datalens_service.mechanisms.private_records import Rows, Vault
from datalens_service.mechanisms.unit_records import UnitRows, UnitVault, as_tensors
from datalens_service.methods import DpSgd
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import run

from .alarm import expect
from .contribution_cases import CASES, ContributionCase
from .replay import _OPTIONS, _pool

MANY = 8_200
"""More records than are taken together anywhere behind the wall (`test_contributions.py` compares)."""

MANY_UNITS = 1_400
"""The same of units of a descent, which have two records on average."""


class Question(NamedTuple):
    """What a run asked."""

    function: Callable[[Any, Any], Any]
    released: Any
    rows: Rows
    of_units: bool


def rows_are_functions_of_their_own_records(rng: np.random.Generator) -> None:
    """R6: over many rows, over parts of them, and in another order, a contribution says the same of every one."""
    for question in questions(rng).values():
        name = question.function.__qualname__
        take = _units(question, rng) if question.of_units else _records(question, rng)
        count = MANY_UNITS if question.of_units else MANY
        together = _asked(question, take(np.arange(count)))
        order = rng.permutation(count)
        for start, end in itertools.pairwise((0, 1, 8, int(rng.integers(count // 8 + 1, count // 2)))):
            places = order[start:end]
            part = _asked(question, take(places))
            same = all(some.tobytes() == all_[places].tobytes() for some, all_ in zip(part, together, strict=True))
            expect(same, f"{name}: a row depends neither on its place nor on how many others there are")


Taken = Callable[[np.ndarray], Any]
"""Rows as a contribution gets them, of the chosen ones of many made-up records or units, in that order."""


def _records(question: Question, rng: np.random.Generator) -> Taken:
    chosen = rng.integers(len(question.rows.units), size=MANY)
    many = Rows(*(array[chosen] for array in question.rows))
    return lambda places: Rows(*(array[places] for array in many))


def _units(question: Question, rng: np.random.Generator) -> Taken:
    """Units of one to three records, under new identities that ascend in the order."""
    sizes = rng.integers(1, 4, size=MANY_UNITS)
    chosen = np.split(rng.integers(len(question.rows.units), size=sizes.sum()), np.cumsum(sizes)[:-1])

    def taken(places: np.ndarray) -> UnitRows:
        records = np.concatenate([chosen[place] for place in places])
        units = np.repeat(np.arange(len(places)), sizes[places])
        return as_tensors(Rows(question.rows.values[records], question.rows.labels[records], units), "cpu")

    return taken


def questions(rng: np.random.Generator) -> dict[tuple[str, str], Question]:
    """Of `asking_cases`; each function once, with the released values it got last."""
    asked: dict[tuple[str, str], Question] = {}

    def noted(vault: type[Any], of_units: bool) -> Any:
        answer = vault.answer

        def answered(self: Any, function: Callable[[Any, Any], Any], released: Any, *batch: Any) -> Any:
            rows = self._source._read() if of_units else self._read()
            asked[function.__module__, function.__qualname__] = Question(function, released, rows, of_units)
            return answer(self, function, released, *batch)

        return mock.patch.object(vault, "answer", answered)

    with noted(Vault, False), noted(UnitVault, True):
        for case in asking_cases():
            dataset = case.dataset(rng)
            public = _pool(case.spec, dataset.schema)
            run(case.spec, dataset, account=UnchargedAccount(), public=public, options=_OPTIONS)
    return asked


def asking_cases() -> list[ContributionCase]:
    """Of every method, with units of one record where there is such a case; of `dp_sgd`, all kinds."""
    first = {_kind(case): case for case in reversed(CASES)}
    return list(first.values())


def _kind(case: ContributionCase) -> tuple[object, ...]:
    method = case.method
    return (
        (type(method), method.compression, method.accounting, method.noise)
        if isinstance(method, DpSgd)
        else (type(method),)
    )


def _asked(question: Question, rows: Any) -> list[np.ndarray]:
    made = question.function(rows, question.released)
    if inspect.isgenerator(made):
        return [torch.cat(list(made)).numpy()]
    # The last of several arrays is the units, which nobody believes.
    return list(made[:-1]) if isinstance(made, tuple) else [made]
