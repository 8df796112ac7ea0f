"""Detectors on contributions themselves: a row is a function of one record, or unit, in any company and at any size.

Behind the wall a contribution is a pure function, so it need not wait for a job: whatever the job of any case asked is
asked again of single records, and of the same beside companies of extremes (`companies.py`): all black, all white, more
than any block of the product has, and at weights with which gradients are not finite.
"""

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
import torch

from datalens_service.mechanisms.private_records import Rows, Vault
from datalens_service.mechanisms.unit_records import UnitVault, as_tensors
from datalens_service.methods import LabelledMoments, LabelledPool, RejectionOrDiffusion, Shapes
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.models.generators.dct import LowFrequencies
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.training import run

from .alarm import Alarm, expect
from .companies import Member, crowd, guests, tables, together
from .contribution_cases import CASES, LONG_CASES, WEIGHTS, ContributionCase
from .replay import _OPTIONS, OWN_ENCODER, _pool
from .written_files import nothing_is_written

MANY = 8_200
"""More records than are taken together anywhere behind the wall (`test_contributions.py` compares)."""

MANY_UNITS = 1_400
"""The same of units of a descent, which have two records on average."""

FEW: Final = 16
ALONE: Final = 3
"""Guests that are asked alone, too; all are asked at each table."""
_LARGEST_UNIT: Final = 3
_SMALL: Final = 108
"""Numbers of a record up to which guests are seated in a crowd, too."""
_HUGE: Final = 1e38


class Question(NamedTuple):
    """What a run asked."""

    function: Callable[[Any, Any], Any]
    released: Any
    rows: Rows
    of_units: bool
    crowded: bool
    """Whether there is time to ask it of thousands."""


def _kind(case: ContributionCase) -> tuple[object, ...]:
    method = case.method
    return (type(method), *(getattr(method, name, "") for name in ("content", "compression", "accounting", "noise")))


# Votes of teachers are asked elsewhere (`detect_teachers.py`). A long run asks what a short one of its method does.
_ASKED = tuple(case for case in CASES if not isinstance(case.method, VotingMethod) and case not in LONG_CASES)
_FIRST = tuple({_kind(case): case for case in reversed(_ASKED)}.values())
_LIGHT = ("moments", "pooled_moments", "mixture", "shapes", "dp_gan", "dp_sgd")
"""Methods that need no encoder, so that large images take no time."""
_IN_COLOUR = tuple(replace(case, channels=3) for case in _FIRST)

MADE_OF_OTHERS = (RejectionOrDiffusion, LabelledPool, LabelledMoments)
"""Methods that ask what others do (`test_contributions.py` compares), and so need no cases of their own here."""

ROW_CASES: tuple[ContributionCase, ...] = tuple(
    case
    for case in (
        *_ASKED,
        *_IN_COLOUR,
        *(replace(case, side=32) for case in _FIRST if case.method.name in _LIGHT),
        ContributionCase(Shapes(content="drawings", subspace_dimensions=4), side=36, channels=3, drawn=True),
    )
    if not isinstance(case.method, MADE_OF_OTHERS)
)
"""All other ones; the first of each kind in colour, too; and those of large images."""

_CROWDED = tuple(
    case
    for case in (*_FIRST, *(case for case in _IN_COLOUR if case.method.name in (*_LIGHT, "scattering")))
    if case in ROW_CASES
)
"""Of which each function is asked of thousands: other cases ask the same functions, or the same encoder in colour."""


def rows_are_functions_of_their_own_records(case: ContributionCase) -> Callable[[np.random.Generator], None]:
    """R6: whatever a record, or unit, stands beside, a contribution says the same of it as of it alone, bit by bit."""

    def detect(rng: np.random.Generator) -> None:
        for question in questions(case, rng).values():
            _same_in_every_company(question, rng, crowded=case in _CROWDED)
            if question.crowded:
                _same_in_every_company(question._replace(released=_enlarged(question.released)), rng, most=2)

    detect.__name__ = f"rows of their own records: {case.name}"
    return detect


def _same_in_every_company(
    question: Question, rng: np.random.Generator, *, most: int | None = None, crowded: bool = False
) -> None:
    """Each guest says the same at each of `most` tables, and each of some of them the same as alone."""
    seated = guests(question.rows, _LARGEST_UNIT if question.of_units else 1, rng)
    company = list(tables(question.rows, seated, FEW, rng))[:most]
    small = math.prod(question.rows.values.shape[1:]) <= _SMALL
    if crowded and small and question.crowded:
        company.append(crowd(question.rows, seated, MANY_UNITS if question.of_units else MANY, rng))
    name = question.function.__qualname__
    said: dict[int, list[bytes]] = {}
    for place in rng.choice(len(seated), size=ALONE, replace=False).tolist():
        said[place] = _row(_asked(question, [seated[place]]), 0)
    for turn, table in enumerate(company):
        beside = _asked(question, table.members, [0] * len(table.members) if turn % 2 else None)
        for guest, place in enumerate(table.places):
            row = _row(beside, place)
            expect(row == said.setdefault(guest, row), f"{name}: the row of a record is the same {table.name}")


def _asked(question: Question, members: list[Member], units: list[int] | None = None) -> list[np.ndarray]:
    """Arrays of one row for every member, from a contribution that raises nothing and opens no file to write."""
    rows: Any = as_tensors(together(members), "cpu") if question.of_units else together(members, units)
    made: Any = None
    raised = ""
    with nothing_is_written(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            made = question.function(rows, question.released)
            made = [torch.cat(list(made)).numpy()] if inspect.isgenerator(made) else made
        except Alarm:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it tells of records)
            raised = repr(error)
    expect(not raised, f"{question.function.__qualname__}: no record makes a contribution raise: {raised}")
    # The last of several arrays is the units, which nobody believes.
    return list(made[:-1]) if isinstance(made, tuple) else [made] if isinstance(made, np.ndarray) else made


def _row(made: list[np.ndarray], place: int) -> list[bytes]:
    return [_bits(array[place]) for array in made]


def _bits(row: np.ndarray) -> bytes:
    """Of what is not a number no mechanism sees more than that it is none."""
    return np.where(np.isnan(row), np.nan, row).tobytes() if row.dtype.kind == "f" else row.tobytes()


def _enlarged(released: Any) -> Any:
    """A copy whose numbers are so large that gradients of bright records are not finite, and those of dark ones are.

    A basis of frequencies is a public constant, and stays.
    """
    copied = copy.deepcopy(released)
    _enlarge(copied, set())
    return copied


def _enlarge(value: Any, seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor | np.ndarray):
        if "float" in str(value.dtype):
            with torch.no_grad(), np.errstate(over="ignore"):
                value *= _HUGE
    elif isinstance(value, torch.nn.Module):
        for parameter in value.parameters():
            _enlarge(parameter, seen)
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            _enlarge(one, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type | LowFrequencies):
        for one in vars(value).values():
            _enlarge(one, seen)


def questions(case: ContributionCase, rng: np.random.Generator) -> dict[tuple[str, str], Question]:
    """Of a run; each function once, with the released values it got last."""
    asked: dict[tuple[str, str], Question] = {}
    # A network made for photographs takes milliseconds for each.
    encoder = getattr(case.method, "encoder", None)
    quick = encoder != OWN_ENCODER and getattr(encoder, "name", "") not in WEIGHTS

    def noted(vault: type[Any], of_units: bool) -> Any:
        answer = vault.answer

        def answered(self: Any, function: Callable[[Any, Any], Any], released: Any, *batch: Any) -> Any:
            rows = self._source._read() if of_units else self._read()
            asked[function.__module__, function.__qualname__] = Question(function, released, rows, of_units, quick)
            return answer(self, function, released, *batch)

        return mock.patch.object(vault, "answer", answered)

    with noted(Vault, False), noted(UnitVault, True), mock.patch.object(public_denoiser, "_STEPS", 4):
        dataset = case.dataset(rng)
        public = _pool(case.spec, dataset.schema)
        run(case.spec, dataset, account=UnchargedAccount(), public=public, options=_OPTIONS)
    return asked
