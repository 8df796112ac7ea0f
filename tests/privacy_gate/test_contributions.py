"""Record and replay covers every method, and cannot compare what it does not know."""

import re
import typing
from collections import defaultdict

import numpy as np
import pytest

from datalens_service.mechanisms import AccuracyCount, CrossProductSum, Mechanism
from datalens_service.methods import (
    AnyMethod,
    DataLens,
    Diffusion,
    DpSgd,
    LabelledMoments,
    LabelledPool,
    Moments,
    PooledMoments,
    Rejection,
    RejectionOrDiffusion,
    Scattering,
)
from datalens_service.methods.sums.content_count import are_drawings
from datalens_service.methods.voting.teachers import AnyTeacher
from datalens_service.methods.voting.voting_method import VotingMethod
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

from . import detect_rows, detect_teachers, replay
from .blocks import OTHER_SIZES, PRODUCT, find_sizes
from .cases import CASES as MECHANISM_CASES
from .cases import MECHANISMS
from .contribution_cases import CASES, HORIZON, HORIZON_OF_A_DENOISER, LARGE_CASES
from .detect_rows import MANY, MANY_UNITS

REGISTERED = typing.get_args(AnyMethod)


def test_every_registered_method_has_cases_with_units_of_one_to_three_records():
    records = defaultdict(set)
    for case in CASES:
        records[type(case.method)].add(case.records)
    wanted = {method: {1, 2, 3} for method in REGISTERED}
    assert records == wanted, "give each method cases of 1, 2 and 3 records in contribution_cases.py"


@pytest.mark.parametrize("parameter", ["teacher", "shards", "votes", "vote_basis", "student"])
def test_every_variant_of_votes_has_a_case(parameter: str):
    variants = typing.get_args(typing.get_type_hints(DataLens)[parameter])
    names = {kind.model_fields["name"].default if isinstance(kind, type) else kind for kind in variants}
    tried = [getattr(case.method, parameter) for case in CASES if isinstance(case.method, DataLens)]
    assert {getattr(value, "name", value) for value in tried} == names


def test_every_kind_of_teacher_is_asked_again_beside_others():
    assert {type(method.teacher) for method in detect_teachers.METHODS} == set(typing.get_args(AnyTeacher))
    assert {method for method in REGISTERED if issubclass(method, VotingMethod)} == {
        type(method) for method in detect_teachers.METHODS
    }


def test_sums_and_votes_have_a_case_beyond_a_chunk_of_noise():
    assert len({type(case.method) for case in LARGE_CASES}) == 2


def test_plans_with_branches_have_a_case_of_each():
    cases = [case for case in CASES if isinstance(case.method, RejectionOrDiffusion)]
    drawings = [are_drawings(case.dataset(np.random.default_rng(0)).train.images).mean() for case in cases]
    assert {bool(share > 0.5) for share in drawings} == {False, True}


def test_kinds_of_contributions_that_cannot_be_compared_are_an_error(monkeypatch: pytest.MonkeyPatch):
    case = next(case for case in MECHANISM_CASES if isinstance(case.mechanism, CrossProductSum))
    data = case.make(np.random.default_rng(0))
    monkeypatch.setattr(replay, "ROWS", ())
    monkeypatch.setattr(Mechanism, "release", replay._recording_release([], MemoryAccount(10**30), {}, draws=True))
    with pytest.raises(TypeError, match="OuterProductFactors"):
        case.mechanism.release(lambda: data, step=0, account=MemoryAccount(10**30), noise=NoiseSource())


def test_contributions_are_asked_again_beyond_every_block_of_the_product():
    """A block of rows in which something might be shared is smaller than what the detector of rows asks with."""
    rooms = [path for room in ("methods", "models") for path in (PRODUCT / room).rglob("*.py")]
    # Teachers are asked in companies of their own (`detect_teachers.py`).
    asked = [path for path in rooms if not {"voting", "teachers"} & set(path.parts)]
    of_units = [path for path in asked if "descent" in path.parts or path.name == "per_record.py"]
    sizes_of_units = find_sizes(of_units)
    sizes = find_sizes(asked)
    assert OTHER_SIZES.items() <= sizes.items(), "a size that no module cuts any more is listed"
    assert len(sizes_of_units) > 8
    assert max(sizes.values()) < MANY
    assert max(sizes_of_units.values()) < MANY_UNITS


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        (RejectionOrDiffusion, (Rejection, Diffusion)),
        (LabelledPool, (Moments, Scattering)),
        (LabelledMoments, (PooledMoments, Scattering)),
    ],
)
def test_methods_made_of_others_ask_nothing_that_is_not_asked_of_thousands(method: type, parts: tuple[type, ...]):
    assert method in detect_rows.MADE_OF_OTHERS
    crowded = [next(case for case in detect_rows._CROWDED if type(case.method) is part) for part in parts]
    (case,) = [case for case in detect_rows._FIRST if type(case.method) is method]
    asked, *of_parts = (set(detect_rows.questions(one, np.random.default_rng(0))) for one in (case, *crowded))
    assert asked <= set().union(*of_parts)


def test_every_method_that_may_start_from_public_images_has_a_case_that_does():
    started = {type(case.method) for case in CASES if case.spec.public_data is not None}
    assert started == {method for method in REGISTERED if method.facts.public_images}


def test_cases_run_beyond_the_period_of_whatever_a_run_does_now_and_then():
    sources = {path: path.read_text() for path in (PRODUCT / "methods").rglob("*.py")}
    found = {path: re.search(r"^_STEPS_PER_STATE.*= (\d+)$", source, re.M) for path, source in sources.items()}
    periods = {path.stem: int(steps[1]) for path, steps in found.items() if steps}
    assert len(periods) == sum("% _STEPS_PER_STATE" in source for source in sources.values()) >= 3
    assert periods.pop("diffusion_run") < HORIZON_OF_A_DENOISER
    assert max(periods.values()) < HORIZON
    counted = {method for method in REGISTERED if "steps" in method.model_fields} - {LabelledMoments, Rejection}
    horizons = {Diffusion: HORIZON_OF_A_DENOISER}
    tried = {(type(case.method), getattr(case.method, "steps", 0)) for case in CASES}
    assert {(method, horizons.get(method, HORIZON)) for method in counted} <= tried


def test_every_mechanism_is_released_by_a_job_that_is_tried():
    """Accuracy on a data set that was set aside is asked for by evaluation, and tried there."""
    missing = set(MECHANISMS) - {AccuracyCount}
    for case in CASES:
        plan = case.spec.plan(case.dataset(np.random.default_rng(0)).schema)
        missing -= {type(release.mechanism) for path in plan.paths() for release in path.releases}
        if not missing:
            return
    assert missing == set(), "a mechanism needs a case of a method that releases it"


def test_individual_accounting_has_a_case():
    assert any(isinstance(case.method, DpSgd) and case.method.accounting == "per_instance" for case in CASES)
