"""Rejection or diffusion: the released count decides, one branch is charged, and the dearest was set aside."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.methods import Diffusion, Plan, RejectionOrDiffusion
from datalens_service.methods.public_start import PublicImages
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import Charge, NeighboringRelation, compute_slack, delta_beside, limit_units
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import public_images, run
from tests.stepped_runs import SteppedRun

from . import builders
from .builders import advance
from .test_shapes import bars, shaded

EPSILON, DELTA = 8.0, 1e-4
REJECTION: dict[str, Any] = {"name": "rejection", "steps": 3, "samples": 200, "dimensions": 20}
DENOISER: dict[str, Any] = {
    "warm_start": REJECTION, "batch": 60, "steps": 3, "width": 8, "blocks": 1, "pretraining_steps": 5,
    "pretraining_samples": 100, "path": 3, "noise_multiplier": 8.0,
}  # fmt: skip
METHOD = RejectionOrDiffusion.model_validate({"drawings": REJECTION, "objects": DENOISER})
MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
DRAWINGS, OBJECTS = bars(), shaded(bars())
CONTENTS = pytest.mark.parametrize(("content", "dataset"), [("drawings", DRAWINGS), ("objects", OBJECTS)])


@pytest.fixture(scope="module")
def plan() -> Plan:
    return METHOD.plan_within(DRAWINGS.schema, EPSILON, DELTA)


class Trained(NamedTuple):
    """A run after its last step, and its account."""

    run: SteppedRun
    books: MemoryAccount


def account() -> MemoryAccount:
    return MemoryAccount(limit_units(EPSILON, DELTA), (EPSILON, DELTA))


def start(plan: Plan, dataset: Dataset, public: PublicImages | None = None) -> SteppedRun:
    return builders.start(METHOD, dataset, plan, public=public)


@pytest.fixture(scope="module")
def trained(plan: Plan) -> dict[str, Trained]:
    """A whole run on either content."""
    made = {}
    for content, dataset in (("drawings", DRAWINGS), ("objects", OBJECTS)):
        made[content] = Trained(start(plan, dataset), account())
        advance(*made[content])
    return made


@pytest.mark.parametrize("content", ["drawings", "objects"])
def test_the_branch_of_the_content_is_charged_and_nothing_else(
    content: str, plan: Plan, trained: dict[str, Trained]
) -> None:
    training, books = trained[content]
    path = plan.along(content)
    planned = [release.mechanism.label() for release in path.releases for _ in range(release.count)]
    assert [label for _, label, _ in books.charges] == planned
    assert [step for step, _, _ in books.charges] == list(range(path.steps)) == list(range(training.steps))
    assert Charge(books.charged_units, books.slack) == path.charge()
    assert training.begin().plan == path
    assert training.begin().branch == content
    assert training.result().kind == {"drawings": "rejection", "objects": "diffusion"}[content]


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_dearest_branch_is_set_aside_in_units_and_in_slack(plan: Plan, relation: NeighboringRelation) -> None:
    paths = [plan.along(content) for content in ("drawings", "objects")]
    assert plan.cost(relation) == max(path.cost(relation) for path in paths)
    # Else what is given back, and ε as it is stated, would depend on the branch (docs, "Why the largest of each").
    assert {path.slack for path in paths} == {plan.slack}
    assert plan.slack > 0
    assert plan.steps == max(path.steps for path in paths)
    assert plan.images == 0


def test_both_branches_fit_beside_the_slack_of_either() -> None:
    plan = METHOD.model_validate({}).plan_within(MNIST, 1.0, 1e-5)
    limit = limit_units(1.0, delta_beside(compute_slack(1e-5, 0.05), 1e-5))
    for content in ("drawings", "objects"):
        assert 0.99 * limit < plan.along(content).cost() <= limit
    (count,) = plan.releases
    assert count.cost() <= 0.01 * limit


@CONTENTS
def test_the_count_that_was_released_decides_and_not_the_records(content: str, dataset: Dataset, plan: Plan) -> None:
    books = account()
    advance(start(plan, dataset), books, 1)
    others = start(plan, OBJECTS if content == "drawings" else DRAWINGS)
    advance(others, books, 1)
    assert len(books.charges) == 1
    assert others.begin().plan == plan.along(content)


@CONTENTS
def test_a_killed_run_goes_on_without_a_second_charge(content: str, dataset: Dataset, plan: Plan) -> None:
    steps = plan.along(content).steps
    for killed_before in (1, steps - 1):
        books = account()
        advance(start(plan, dataset), books, killed_before)
        charges = list(books.charges)
        again = start(plan, dataset)
        advance(again, books, killed_before)
        assert books.charges == charges, killed_before
        advance(again, books)
        assert len(books.charges) == steps
        assert again.begin().plan == plan.along(content)


def test_the_content_outlives_the_sums_that_a_state_replaces(plan: Plan, trained: dict[str, Trained]) -> None:
    """The count is dropped with the first sums; another data set's records do not change what was decided."""
    uninterrupted, books = trained["objects"]
    assert books.latest() is not None
    assert books.replay(0) is None
    resumed = start(plan, DRAWINGS)
    advance(resumed, books)
    assert resumed.begin().plan == plan.along("objects")
    assert len(books.charges) == plan.along("objects").steps
    for name, value in uninterrupted.result().tensors.items():
        np.testing.assert_array_equal(resumed.result().tensors[name], value)


@pytest.mark.parametrize(("stddev", "proposals"), [(2.5, True), (1.9, False), (None, False)])
def test_images_begin_at_samples_before_any_is_rejected_where_noise_hides_it(
    stddev: float | None, proposals: bool
) -> None:
    method = Diffusion.model_validate(DENOISER | {"start_stddev": stddev, "steps": 1})
    training = builders.start(method, OBJECTS, method.plan_within(OBJECTS.schema, EPSILON, DELTA))
    model = advance(training, account()).result()
    assert isinstance(model, Generator)
    assert model.settings["start_proposals"] is proposals


def test_nothing_is_known_before_the_count(plan: Plan) -> None:
    training = start(plan, DRAWINGS)
    assert training.steps == plan.steps
    assert not training.begin().can_stop
    assert training.begin().branch == ""
    with pytest.raises(RuntimeError, match="nothing to hand out"):
        training.result()


@CONTENTS
def test_a_result_names_the_path_and_why(content: str, dataset: Dataset) -> None:
    spec = TrainingSpec(method=METHOD, epsilon=EPSILON, delta=DELTA)
    result = run(spec, dataset, account=UnchargedAccount())
    plan = spec.plan(dataset.schema)
    assert result.plan == plan.along(content)
    assert result.steps_made == result.plan.steps
    assert f"most images are {content}" in result.rationale
    described = spec.summarize(plan, dataset.schema).releases
    assert {release.get("branch") for release in described} == {None, "drawings", "objects"}


@CONTENTS
def test_public_images_help_the_classifier_of_either_branch(
    content: str, dataset: Dataset, plan: Plan, trained: dict[str, Trained]
) -> None:
    noise = np.random.default_rng(0).integers(0, 255, dataset.train.images.shape).astype(np.uint8)
    public = Upload(dataset.schema, Split(noise, dataset.train.labels, dataset.train.unit_ids), None)
    training = start(plan, dataset, public_images(public))
    advance(training, account())
    bases = [
        next(value for name, value in each.result().tensors.items() if name.endswith("0.basis"))
        for each in (training, trained[content].run)
    ]
    assert not np.allclose(*bases)


def test_public_images_of_another_size_are_refused_before_anything_is_charged(plan: Plan) -> None:
    public = builders.dataset(DRAWINGS.train.images[:, :7, :7], DRAWINGS.train.labels)
    with pytest.raises(InvalidSpec, match="7x7"):
        start(plan, DRAWINGS, public_images(public)).begin()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objects": DENOISER | {"warm_start": "moments"}}, "rejection"),
        ({"drawings": REJECTION | {"warm_start": {"content": "drawings"}}}, "content"),
    ],
)
def test_parameters_that_leave_nothing_to_decide_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RejectionOrDiffusion.model_validate(parameters)


def test_warnings_say_that_they_are_about_objects() -> None:
    small, method = MNIST.model_copy(update={"num_units": 5_000}), RejectionOrDiffusion()
    (noise,) = method.warnings(method.plan_within(small, 0.2, 1e-5), small)
    assert noise.startswith("If the images show objects: The noise of a step")
    assert method.warnings(method.plan_within(MNIST, 1.0, 1e-5), MNIST) == ()
