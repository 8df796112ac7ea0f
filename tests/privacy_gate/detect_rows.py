"""Detector on contributions themselves: each row is a function of one record, in any company and at any size.

Behind the wall a contribution is a pure function, so it need not wait for a job: what a short job asked once is asked
again of more rows than any block of the product has, and in parts.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from datalens_service.mechanisms.private_records import Rows, _Vault
from datalens_service.methods.base import WalledMethod
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import run

from .alarm import expect
from .contribution_cases import CASES, ContributionCase
from .replay import _OPTIONS, _pool

MANY = 8_200
"""More rows than are taken together anywhere behind the wall (`test_contributions.py` compares)."""


class Question(NamedTuple):
    """What a run asked."""

    function: Callable[[Rows, Any], Any]
    released: Any
    rows: Rows


def rows_are_functions_of_their_own_records(rng: np.random.Generator) -> None:
    """R6: over many rows, over parts of them, and in another order, a contribution says the same of every record."""
    for question in questions(rng).values():
        name = question.function.__qualname__
        chosen = rng.integers(len(question.rows.units), size=MANY)
        many = Rows(*(array[chosen] for array in question.rows))
        together = _asked(question, many)
        ends = (0, 1, 8, int(rng.integers(1_025, 4_000)), MANY)
        for start, end in itertools.pairwise(ends):
            part = _asked(question, Rows(*(array[start:end] for array in many)))
            same = all(some.tobytes() == all_[start:end].tobytes() for some, all_ in zip(part, together, strict=True))
            expect(same, f"{name}: a row does not depend on how many others there are")
        order = rng.permutation(MANY)
        turned = _asked(question, Rows(*(array[order] for array in many)))
        same = all(some.tobytes() == all_[order].tobytes() for some, all_ in zip(turned, together, strict=True))
        expect(same, f"{name}: a row does not depend on its place")


def questions(rng: np.random.Generator) -> dict[tuple[str, str], Question]:
    """Of the first case of every method behind the wall; each function once, with the released values it got last."""
    asked: dict[tuple[str, str], Question] = {}
    answer = _Vault.answer

    def noted(self: _Vault, function: Callable[[Rows, Any], Any], released: Any) -> Any:
        result = answer(self, function, released)
        asked[function.__module__, function.__qualname__] = Question(function, released, self._read())
        return result

    with mock.patch.object(_Vault, "answer", noted):
        for case in one_case_each():
            dataset = case.dataset(rng)
            public = _pool(case.spec, dataset.schema)
            run(case.spec, dataset, account=UnchargedAccount(), public=public, options=_OPTIONS)
    return asked


def one_case_each() -> list[ContributionCase]:
    """Of every method behind the wall, with units of one record where there is such a case."""
    first = {type(case.method): case for case in reversed(CASES) if isinstance(case.method, WalledMethod)}
    return list(first.values())


def _asked(question: Question, rows: Rows) -> list[np.ndarray]:
    made = question.function(rows, question.released)
    # The last of several arrays is the units, which nobody believes.
    return list(made[:-1]) if isinstance(made, tuple) else [made]
