"""What every mechanism must keep, walked over the registry."""

import re
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

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
from datalens_service.privacy.accounting import NeighboringRelation, mu_of_ledger_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from privacy_gate.cases import CASES, PIXELS, REPLACE_ONE, ZERO_OUT, distances_squared, vote

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "docs" / "mechanisms"
REGISTERED = typing.get_args(AnyMechanism)

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


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


def test_only_directions_have_noise_that_is_not_discrete_gaussian():
    others = [kind for kind in REGISTERED if kind.noisy_sum is not Mechanism.noisy_sum]
    assert others == [VonMisesFisherSum]


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
    charged = mu_of_ledger_units(account.charged_units // images)
    assert charged * (0.993 - 6 / np.sqrt(2 * images)) <= found <= charged * (1 + 6.5 / np.sqrt(2 * images))
