"""What every mechanism must keep, walked over the registry."""

import re
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from scipy import stats

from datalens_service.errors import BudgetExceeded
from datalens_service.mechanisms import (
    AnyMechanism,
    AnyVotes,
    ClippedRows,
    CountSketch,
    Histogram,
    LabelScores,
    Mechanism,
    TopAgg,
    VonMisesFisherSum,
    VoteMechanism,
)
from datalens_service.privacy.accounting import NeighboringRelation, mu_of_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from privacy_gate.cases import CASES, IMAGES, PIXELS, REPLACE_ONE, ZERO_OUT, distances_squared, vote

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "docs" / "mechanisms"
REGISTERED = typing.get_args(AnyMechanism)

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
GAUSSIAN_CASES = [case for case in CASES if type(case.mechanism).noisy_sum is Mechanism.noisy_sum]
VOTE_CASES = [case for case in CASES if isinstance(case.mechanism, VoteMechanism)]


def test_every_registered_mechanism_has_a_case():
    assert {type(case.mechanism) for case in CASES} == set(REGISTERED)
    for mechanism in REGISTERED:
        assert mechanism.release is Mechanism.release, "the door is final"
        assert mechanism.cost is Mechanism.cost


def test_every_vote_has_parameters_of_its_own_under_its_name():
    parameters = {kind.model_fields["name"].default: kind.mechanism for kind in typing.get_args(AnyVotes)}
    votes = {kind for kind in REGISTERED if issubclass(kind, VoteMechanism)}
    # Scores are no directions, so the methods that offer a choice of votes do not offer them.
    directions = {kind for kind in votes if not kind.reads_scores}
    assert parameters == {kind.model_fields["name"].default: kind for kind in directions}
    for kind in votes:
        for proved in ("exact_sum", "zero_out_of_bound_rows", "sensitivity_squared", "queries_per_unit"):
            assert getattr(kind, proved) is getattr(VoteMechanism, proved)


@pytest.mark.parametrize("mechanism", REGISTERED, ids=lambda kind: kind.__name__)
def test_every_mechanism_has_a_proof_page(mechanism):
    named = re.compile(rf"^\*\*Code\*\*.*`{mechanism.__name__}`", re.MULTILINE)
    pages = [text for page in PROOFS.glob("*.md") if named.search(text := page.read_text())]
    assert pages, f"no page in docs/mechanisms/ names {mechanism.__name__} in its line **Code**"
    assert all("## Claim" in text and "## Proof" in text for text in pages)


def test_the_code_and_tests_that_proof_pages_name_exist():
    for page in PROOFS.glob("*.md"):
        anchors = re.findall(r"`((?:datalens_service|tests)/[\w./]+\.py)`", page.read_text())
        assert anchors, page.name
        assert [anchor for anchor in anchors if not (ROOT / anchor).is_file()] == [], page.name


@each_case
def test_a_mechanism_says_which_units_it_is_priced_for(case):
    fields = type(case.mechanism).model_fields
    declared = [getattr(case.mechanism, name, 1) for name in ("records_per_unit", "classes_per_unit")]
    assert case.mechanism.covers_whole_units(*declared)
    apart = getattr(case.mechanism, "classes_voted_apart", 1) > 1
    assert case.mechanism.covers_whole_units(declared[0] + 1, declared[1]) == ("records_per_unit" not in fields)
    assert case.mechanism.covers_whole_units(declared[0], declared[1] + 1) != apart


def test_a_mechanism_that_does_not_say_which_units_it_is_priced_for_cannot_be_made():
    class Undeclared(Mechanism):
        label = sensitivity_squared = queries_per_unit = total = decode = lambda self, *_: 1

    with pytest.raises(TypeError, match="covers_whole_units"):
        Undeclared(noise_stddev=100)


@each_case
def test_a_mechanism_survives_json(case):
    assert TypeAdapter(AnyMechanism).validate_json(case.mechanism.model_dump_json()) == case.mechanism


@each_case
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_neighbors_never_exceed_the_sensitivity(case, relation):
    rng = np.random.default_rng(1)
    query = case.mechanism.sensitivity_squared(relation)
    for _ in range(100):
        data = case.make(rng)
        neighbor = case.neighbors[relation](rng, data)
        worst, together = distances_squared(case.mechanism, data, neighbor)
        assert worst <= query
        assert together <= query * case.mechanism.queries_per_unit(relation)


@each_case
def test_the_worst_neighbor_attains_the_sensitivity(case):
    worst, _ = distances_squared(case.mechanism, *case.worst())
    bound = case.mechanism.sensitivity_squared(ZERO_OUT)
    assert case.tightness * bound <= worst <= bound


@pytest.mark.parametrize("mechanism", REGISTERED, ids=lambda kind: kind.__name__)
def test_units_that_are_not_finite_contribute_nothing(mechanism):
    example = mechanism.example_contributions()
    sums = [example.mechanism.exact_sum(data) for data in (example.contributions, example.not_finite)]
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("case", VOTE_CASES, ids=[case.name for case in VOTE_CASES])
def test_a_row_that_is_not_finite_contributes_nothing_among_others(case):
    data = case.make(np.random.default_rng(2))
    broken = torch.full((4, IMAGES, case.mechanism.dimensions), float("nan"))
    broken[1, :, -1], broken[2, 0, 0] = float("inf"), float("-inf")
    broken[3] = 0.0
    broken = broken[: case.mechanism.num_teachers - len(data[0])]
    sums = [case.mechanism.exact_sum(blocks) for blocks in (data, [*data, broken])]
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("case", VOTE_CASES, ids=[case.name for case in VOTE_CASES])
def test_a_row_depends_on_its_own_gradient_alone(case):
    (block,) = case.make(np.random.default_rng(6))
    changed = block.clone()
    changed[1] *= -1e9
    first, second = (case.mechanism.encode(data, torch.Generator().manual_seed(9)) for data in (block, changed))
    others = [row for row in range(len(block)) if row != 1]
    assert torch.equal(first[others], second[others])
    assert not torch.equal(first[1], second[1])


def test_only_directions_have_noise_that_is_not_discrete_gaussian():
    others = [kind for kind in REGISTERED if kind.noisy_sum is not Mechanism.noisy_sum]
    assert others == [VonMisesFisherSum]


@pytest.mark.parametrize("case", GAUSSIAN_CASES, ids=[case.name for case in GAUSSIAN_CASES])
def test_every_coordinate_gets_noise_of_the_stated_scale(case):
    noise = NoiseSource()
    data = case.make(np.random.default_rng(3))
    exact = case.mechanism.exact_sum(data)
    draws = []
    for step in range(max(30, 3_000 // exact.size)):
        account = MemoryAccount(case.mechanism.cost())
        case.mechanism.release(lambda *_: data, step=step, account=account, noise=noise)
        stored = account.replay(step)
        assert stored is not None
        draws.append((stored - exact) / case.mechanism.noise_stddev)
    sample = np.array(draws)
    assert (sample.std(axis=0) > 0.25).all(), "no coordinate is left without noise"
    flat = sample.ravel()
    # Of one case; there are nearly forty, and the suite runs often.
    chance = 1e-10
    assert stats.kstest(flat, "norm").pvalue > chance
    assert stats.kstest(flat * 1.5, "norm").pvalue < chance, "the test rejects a wrong scale"


@each_case
def test_the_charge_comes_before_the_draw(case):
    data = case.make(np.random.default_rng(4))

    class NoDraw:
        def discrete_gaussian(self, shape, noise_stddev):
            raise AssertionError("noise was drawn although the charge was refused")

        directions = discrete_gaussian

    account = MemoryAccount(case.mechanism.cost() - 1)
    with pytest.raises(BudgetExceeded):
        case.mechanism.release(lambda *_: data, step=0, account=account, noise=NoDraw())
    assert account.charges == []
    assert account.replay(0) is None


@each_case
def test_a_stored_step_is_handed_out_again_without_reading_records(case):
    account = MemoryAccount(case.mechanism.cost())
    data = case.make(np.random.default_rng(5))
    first = case.mechanism.release(lambda *_: data, step=0, account=account, noise=NoiseSource())

    def forbidden():
        raise AssertionError("a replayed step must not read private records")

    again = case.mechanism.release(forbidden, step=0, account=account, noise=NoiseSource())
    np.testing.assert_array_equal(first, again)
    assert account.charged_units == case.mechanism.cost()


@each_case
def test_cost_depends_on_public_parameters_alone(case):
    copy = type(case.mechanism).model_validate(case.mechanism.model_dump())
    assert copy.cost() == case.mechanism.cost()
    assert case.mechanism.cost(REPLACE_ONE) >= case.mechanism.cost(ZERO_OUT)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (TopAgg, {"top_k": PIXELS}),
        (CountSketch, {"top_k": PIXELS, "rows": 3, "columns": 512}),
        (Histogram, {"projections": 6, "bins": 4, "weight": 16}),
        (ClippedRows, {"grid": 128, "noise_stddev": 500}),
        (LabelScores, {"scores": "bit", "dimensions": 1}),
        (LabelScores, {"scores": "relative", "dimensions": 1}),
    ],
    ids=str,
)
def test_mechanism_level_audit_of_votes(kind, parameters):
    """The best distinguisher of the worst neighbours finds nearly all of the charged μ, and never more.

    It looks along the difference of the two exact sums. Both sums get noise of the same releases: what tells
    them apart is then estimated to a percent instead of to a fifth.
    """
    images = 4_000
    mechanism = vote(kind, **({"images": images, "noise_stddev": 100} | parameters))
    base = torch.ones(1, images, mechanism.dimensions)
    if parameters.get("scores") == "relative":
        # Scores of one teacher are relative to its others: half of the images look as real as can be, half as false.
        base[0, ::2] *= -1
    account = MemoryAccount(mechanism.cost())
    mechanism.release(lambda: [base], step=0, account=account, noise=NoiseSource())
    high, low = (mechanism.exact_sum([sign * base]) for sign in (1, -1))
    difference = (high - low)[0].astype(np.float64)
    scores = (account.replay(0) - high) @ difference
    found = difference @ difference / scores.std()
    charged = mu_of_units(account.charged_units // images)
    assert charged * (0.993 - 6 / np.sqrt(2 * images)) <= found <= charged * (1 + 6.5 / np.sqrt(2 * images))
