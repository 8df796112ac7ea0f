"""What a plan says of jobs like it rests on sets of many kinds, holds for sets that were left out, and is no rosier."""

import itertools
import json
import re
from typing import Any, get_args

import pytest

from benchmarks import forecasts
from benchmarks.environment import ROOT, SCHEMAS
from benchmarks.rows import PRESETS
from datalens_service.base.errors import InvalidSpec, UnreachableAccuracy
from datalens_service.cli import options
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.methods import LabelledPool, PooledMoments, Scattering
from datalens_service.models.encoders import ImagenetLite0, imagenet_lite0
from datalens_service.planning import phases, resources
from datalens_service.planning.advice import is_of_little_use
from datalens_service.planning.expectations import compare, expect
from datalens_service.planning.forecast import list_usable
from datalens_service.planning.job_names import OFFERED, POOL
from datalens_service.planning.measured import NAMES, read_rows
from datalens_service.planning.phases import measure_machine
from datalens_service.planning.presets import preset
from datalens_service.planning.published import (
    COMMANDS,
    MEASURED_VOTES,
    MeasuredVotes,
    build_published,
    find_measured_votes,
)
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.planning.target import MOST_EPSILON, find_target
from datalens_service.spec import TrainingSpec

GREY = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=1000)
KINDS: list[dict[str, Any]] = [
    {},
    {"channels": 3, "height": 32, "width": 32, "class_names": ("a", "b", "c")},
    {"height": 96, "width": 96, "class_names": ("a", "b")},
    {"channels": 3, "height": 200, "width": 40, "class_names": tuple(f"class {number}" for number in range(60))},
]
"""Nobody tuned to these."""
CHOICES: list[dict[str, Any]] = [{}, {"purpose": "teach"}, {"preset": "classifier"}]


def planned(schema: Schema, epsilon: float, **chosen: Any) -> TrainingSpec:
    return RequestedSpec(epsilon=epsilon, **(chosen or {"preset": "fast"})).resolve(schema)


def schema_of(changed: dict[str, Any], units: int = 2_000) -> Schema:
    return GREY.model_copy(update={**changed, "num_units": units})


def ends(spec: TrainingSpec, schema: Schema, shares: list[float] | None = None) -> tuple[float, float, float]:
    expected = expect(spec, schema, None, shares)
    return expected.accuracy_low, expected.accuracy_middle, expected.accuracy_high


def is_rising(found: list[tuple[float, ...]]) -> bool:
    return all(one <= later + 0.11 for pair in zip(*found, strict=True) for one, later in itertools.pairwise(pair))


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
@pytest.mark.parametrize("changed", KINDS, ids=str)
def test_more_units_or_a_larger_epsilon_never_lower_an_end_of_a_range(
    changed: dict[str, Any], chosen: dict[str, Any]
) -> None:
    def told(units: int, epsilon: float) -> tuple[float, float, float]:
        schema = schema_of(changed, units)
        return ends(planned(schema, epsilon, **chosen, delta=1e-7), schema)

    by_units = [told(units, 1.0) for units in (100, 700, 3_000, 20_000, 400_000)]
    by_epsilon = [told(2_000, epsilon) for epsilon in (0.1, 0.5, 2.0, 7.0, 30.0)]
    assert is_rising(by_units)
    assert is_rising(by_epsilon)


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
@pytest.mark.parametrize("changed", KINDS, ids=str)
@pytest.mark.parametrize("units", [50, 2_000, 300_000])
def test_a_range_lies_between_the_most_frequent_class_and_real_images(
    changed: dict[str, Any], chosen: dict[str, Any], units: int
) -> None:
    schema = schema_of(changed, units)
    unequal = [float(schema.num_classes), *[1.0] * (schema.num_classes - 1)]
    for shares, guessing in ((None, 1 / schema.num_classes), (unequal, max(unequal) / sum(unequal))):
        expected = expect(planned(schema, 1.0, **chosen), schema, None, shares)
        assert expected.guessing == pytest.approx(100 * guessing, abs=0.06)
        assert expected.guessing - 0.11 <= expected.accuracy_low <= expected.accuracy_middle <= expected.accuracy_high
        assert expected.accuracy_high <= expected.real_high <= 100
        assert expected.averaged is (shares is None)


def test_frequencies_are_of_as_many_classes() -> None:
    with pytest.raises(InvalidSpec, match="10 classes"):
        expect(planned(GREY, 1.0), GREY, None, [0.5, 0.5])


@pytest.mark.parametrize(("choice", "sets"), [("look", 17), ("class_averages", 17), ("classifier", 13)])
@pytest.mark.parametrize("declared", [False, True])
def test_nine_of_ten_results_that_were_left_out_lie_in_their_ranges(choice: str, sets: int, declared: bool) -> None:
    scored = forecasts.score_left_out(choice, declared=declared)
    assert len({row.dataset for row in list_usable(choice)}) >= sets
    assert sum(one.inside for one in scored) >= 0.9 * len(scored)


def test_ranges_score_better_than_those_of_earlier_versions() -> None:
    scored, earlier = (score("look", declared=False) for score in (forecasts.score_left_out, forecasts.score_earlier))
    mean, before = (sum(one.interval_score for one in found) / len(found) for found in (scored, earlier))
    assert mean < before


def test_the_interval_score_counts_width_and_ten_times_what_is_missed() -> None:
    assert forecasts.Scored(50, 40, 60).interval_score == 20
    assert forecasts.Scored(30, 40, 60).interval_score == pytest.approx(20 + 10 * 10)


def test_only_sets_whose_facts_lie_among_several_are_called_measured() -> None:
    """One set never stands for all that are large and grey, or have as many classes."""
    for changed in ({"height": 200, "width": 200}, {"class_names": tuple(f"{one}" for one in range(300))}):
        schema = schema_of(changed, 5_000)
        expected = expect(planned(schema, 1.0, preset="auto"), schema)
        assert not expected.measured
        assert "unlike" not in expected.basis
        assert "wide" in expected.basis
    many = schema_of({}, 5_000)
    like = expect(planned(many, 1.0, preset="auto"), many)
    assert like.measured
    assert like.basis.startswith("Measured")
    assert NAMES["mnist"] in like.basis


def test_public_images_of_another_kind_are_not_promised_anything() -> None:
    schema = schema_of({"channels": 3, "height": 32, "width": 32})
    spec = planned(schema, 1.0, purpose="teach", public_data="ds_1")
    expected = expect(spec, schema)
    assert isinstance(spec.method, LabelledPool)
    assert expected.accuracy_low == expected.guessing
    assert not expected.measured
    pool = next(one for one in compare(spec, schema).methods if POOL in one.choices)
    assert pool.accuracy_low == expected.guessing


@pytest.mark.parametrize("changed", KINDS, ids=str)
@pytest.mark.parametrize("units", [500, 20_000])
def test_the_classifier_stands_first_wherever_it_is_expected_to_label_better(
    changed: dict[str, Any], units: int
) -> None:
    schema = schema_of(changed, units)
    looked, taught = (planned(schema, 1.0, **chosen) for chosen in ({"preset": "auto"}, {"purpose": "teach"}))
    methods = compare(taught, schema, teaching=True).methods
    classifier = next(one for one in methods if "classifier" in one.choices)
    images = [one for one in methods if {"auto", "teach"} & set(one.choices)]
    better = all(classifier.accuracy_middle > one.accuracy_middle for one in images)
    assert classifier.best_for_labels is better
    if better:
        assert methods[0] == classifier
    if not expect(taught, schema).warning:
        labels = expect(planned(schema, 1.0, preset="classifier"), schema)
        promised = f"train the private classifier: it is expected to label {int(labels.accuracy_low)} to"
        above = labels.accuracy_middle > expect(looked, schema).accuracy_middle
        assert (promised in expect(looked, schema).verdict) is above


def test_a_wanted_accuracy_gets_the_least_epsilon_that_reaches_it() -> None:
    schema = schema_of({}, 5_000)
    spec = planned(schema, 1.0, preset="auto").model_copy(update={"delta": 1e-6})
    wanted = ends(spec, schema)[1]
    target = find_target(spec, schema, wanted)
    # A tenth of a point, to which accuracies are rounded, is a few hundredths of ε.
    assert target.epsilon == pytest.approx(1.0, abs=0.05)
    at, below, far_below = (
        ends(spec.model_copy(update={"epsilon": epsilon}), schema)[1]
        for epsilon in (target.epsilon, target.epsilon - 0.02, target.epsilon - 0.2)
    )
    assert below <= wanted <= at + 0.06
    assert far_below < at, "two hundredths of ε may change less than a figure shows"
    assert target.units is not None
    assert 0.9 * schema.num_units <= target.units <= 1.1 * schema.num_units


def test_the_epsilon_of_a_target_grows_with_the_accuracy_and_falls_with_the_units() -> None:
    found = []
    for units in (3_000, 6_000, 12_000):
        schema = schema_of({}, units)
        spec = planned(schema, 1.0, preset="classifier").model_copy(update={"delta": 1e-6})
        found.append([find_target(spec, schema, accuracy).epsilon for accuracy in (30.0, 40.0, 50.0)])
    assert all(row == sorted(row) for row in found)
    assert all(list(column) == sorted(column, reverse=True) for column in zip(*found, strict=True))


def test_an_accuracy_that_no_epsilon_reaches_is_refused_with_the_most_that_is_known() -> None:
    schema = schema_of({}, 100)
    with pytest.raises(UnreachableAccuracy, match="% is out of reach: with 100 images") as refused:
        find_target(planned(schema, 1.0, preset="auto"), schema, 99.5)
    assert f"ε = {MOST_EPSILON:g} is" in refused.value.detail
    assert "classifier" not in refused.value.detail


def test_where_images_cannot_reach_an_accuracy_the_epsilon_of_a_classifier_that_can_is_named() -> None:
    schema = schema_of({}, 60_000)
    with pytest.raises(UnreachableAccuracy) as refused:
        find_target(planned(schema, 1.0, preset="auto"), schema, 80.0)
    needed = find_target(planned(schema, 1.0, preset="classifier"), schema, 80.0).epsilon
    assert f"a private classifier is expected to reach it at ε = {needed}" in refused.value.detail


def test_every_row_is_of_a_clean_commit_and_a_set_with_a_name() -> None:
    rows = read_rows()
    assert {row.dataset for row in rows} == set(NAMES)
    assert all(row.commit and not row.commit.rstrip().endswith("+") for row in rows if row.judge > 1)
    keys = [(row.dataset, row.units, row.epsilon, row.choice, row.judge, row.method) for row in rows]
    assert len(keys) == len(set(keys))


def test_a_preset_without_weights_quotes_no_jobs_that_had_them(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(channels=3, height=32, width=32, class_names=tuple("0123456789"), num_units=5000)
    found = []
    for installed in (True, False):
        monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name, found=installed: found or None)
        found.append(expect(planned(schema, 1.0, preset="classifier"), schema))
    assert found[0].accuracy_middle > found[1].accuracy_middle
    assert "was not measured" in found[1].basis


def test_a_slower_machine_takes_longer() -> None:
    usual, slow = (expect(planned(GREY, 1.0), GREY, seconds) for seconds in (0.2, 0.6))
    assert slow.training_seconds == pytest.approx(3 * usual.training_seconds, rel=0.05)
    assert slow.accuracy_low == usual.accuracy_low


def test_every_row_counts_by_its_own_calibration() -> None:
    """A row that was measured on a machine half as fast says half the time."""
    row = next(row for row in read_rows() if row.training_seconds > 1)
    slow = row.model_copy(update={"calibration_seconds": 2 * row.calibration_seconds})
    assert slow.seconds_on(0.002) == pytest.approx(row.seconds_on(0.002) / 2)


def test_the_machine_is_measured_once() -> None:
    assert 0 < measure_machine() == measure_machine()


@pytest.mark.parametrize("changed", [{}, {"channels": 3, "height": 32, "width": 32}, {"height": 128, "width": 96}])
@pytest.mark.parametrize("units", [20, 2_000, 60_000])
def test_every_method_that_could_serve_has_accuracy_time_and_memory(changed: dict[str, Any], units: int) -> None:
    schema = GREY.model_copy(update={**changed, "num_units": units})
    compared = compare(planned(schema, 1.0, preset="fast"), schema, measure_machine())
    assert sorted(name for one in compared.methods for name in one.choices if name != POOL) == sorted(OFFERED)
    assert [one.method for one in compared.methods if one.default] == [preset("auto", schema, 1.0).name]
    assert compared.reason
    for one in compared.methods:
        assert 10 <= one.accuracy_low < one.accuracy_high <= 100
        assert one.training_seconds > 0
        assert one.memory_bytes > 2**29
        assert (one.looks is None) == (one.method in ("scattering", "dp_sgd"))


def test_planned_memory_is_that_of_measured_jobs() -> None:
    """Up to half as much more or less."""
    lines = (ROOT / "benchmarks/results/owners.jsonl").read_text().splitlines()
    measured = [row for line in lines if (row := json.loads(line)).get("method") == "pooled_moments"]
    for job in measured:
        size = {"channels": 3, "height": job["side"], "width": job["side"], "num_units": job["records"]}
        schema = GREY.model_copy(update={**size, "class_names": GREY.class_names[: job["classes"]]})
        planned_mib = resources.expect_memory(PooledMoments(), schema) / 2**20
        assert 1 / 1.5 < planned_mib / job["peak_mib"] < 1.5
    assert len({(job["records"], job["side"]) for job in measured}) >= 3


def test_planned_memory_of_methods_is_that_of_measured_jobs() -> None:
    """The newest of each kind."""
    rows = map(json.loads, (ROOT / "benchmarks/results/memory.jsonl").read_text().splitlines())
    jobs = [(row["spec"], job) for row in rows for job in row.get("jobs", ())]
    measured = {(json.dumps(spec), job["job"]): (spec, job) for spec, job in jobs}
    for spec, job in measured.values():
        height, width, channels, records = map(int, re.split("[x:]", job["job"]))
        size = {"channels": channels, "height": height, "width": width, "num_units": records}
        schema = GREY.model_copy(update=size)
        method = RequestedSpec.model_validate({"epsilon": 1.0, **spec}).resolve(schema).method
        assert 1 / 1.5 < resources.expect_memory(method, schema) / 2**30 / job["peak_gib"] < 1.5, job
    assert len({job["method"] for _, job in measured.values()}) >= 8


def test_times_of_methods_are_those_of_this_machine() -> None:
    schema = GREY.model_copy(update={"num_units": 2_000})
    usual, slow = (compare(planned(schema, 1.0), schema, seconds).methods for seconds in (0.002, 0.006))
    assert all(later.training_seconds >= one.training_seconds for one, later in zip(usual, slow, strict=True))
    helps = [get_args(option)[1].help for option in (options.PresetName, options.Evaluation)]
    assert not re.search(r"minutes|seconds|hours", " ".join(helps), re.IGNORECASE)


@pytest.mark.parametrize(("units", "classes", "little"), [(5, 2, True), (200, 10, True), (500, 10, False)])
def test_a_plan_that_noise_drowns_is_of_little_use_and_says_how_many_records_would_do(
    units: int, classes: int, little: bool
) -> None:
    schema = GREY.model_copy(update={"num_units": units, "class_names": tuple("0123456789"[:classes])})
    expected = expect(planned(schema, 1.0), schema)
    assert bool(expected.warning) is is_of_little_use(planned(schema, 1.0), schema) is little
    assert expected.verdict
    if little:
        needed = int(re.findall(r"About ([\d,]+)", expected.verdict)[0].replace(",", ""))
        assert not is_of_little_use(planned(schema, 1.0), schema.model_copy(update={"num_units": needed}))


def test_a_verdict_promises_no_shapes_where_little_more_than_noise_is_left() -> None:
    schemas = [GREY.model_copy(update={"num_units": units, "channels": 3}) for units in (500, 50_000)]
    scarce, plenty = (expect(planned(schema, 1.0), schema).verdict.split(".")[0] for schema in schemas)
    assert scarce != plenty


def test_the_time_of_an_evaluation_is_that_of_measured_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one training of the standard CNN; a job makes nine by default."""
    judged = [row for row in read_rows() if row.choice == "look" and row.judge > 1]
    once = EvaluationSettings(synthetic_images=5_000, seeds=1, floors=False, ceiling=False, fidelity=())
    for row in judged:
        monkeypatch.setattr(phases, "measure_machine", lambda seconds=row.calibration_seconds: seconds)
        shape = {"channels": row.channels, "height": row.height, "width": row.width}
        schema = schema_of({**shape, "class_names": GREY.class_names[:2]})
        spec = planned(schema, 1.0).model_copy(update={"evaluation": once})
        assert 1 / 2 < phases.expect_phases(spec, schema)["evaluating"] / row.judging_seconds < 1.5, row
    assert len(judged) > 12
    nine = phases.expect_phases(planned(GREY, 1.0), GREY)["evaluating"]
    spec = planned(GREY, 1.0).model_copy(update={"evaluation": once})
    assert nine > 9 * phases.expect_phases(spec, GREY)["evaluating"]


@pytest.mark.parametrize(("classifier", "labelled"), [(Scattering(), 1), (Scattering(encoder=ImagenetLite0()), 4)])
def test_labelling_a_pool_and_crops_of_it_has_its_time(classifier: Scattering, labelled: int) -> None:
    spec = TrainingSpec(method=LabelledPool(classifier=classifier), epsilon=1.0, public_data="ds_1")
    seconds = phases.expect_phases(spec, GREY)
    assert seconds["fitting"] == pytest.approx(labelled * seconds["training"], abs=0.3)


FACES = Schema(channels=3, height=64, width=64, class_names=("a", "b"), num_units=180_000)
HAIR = FACES.model_copy(update={"class_names": ("a", "b", "c"), "num_units": 127_713})
MNIST = GREY.model_copy(update={"num_units": 60_000})


@pytest.mark.parametrize(
    ("name", "schema", "gibibytes"),
    [("paper", MNIST, 25), ("paper_celeba_gender", FACES, 150), ("paper_celeba_hair", HAIR, 206)],
)
def test_the_authors_teachers_lie_on_a_disk_as_large_as_measured(name: str, schema: Schema, gibibytes: float) -> None:
    expected = expect(planned(schema, 1.0, preset=name), schema)
    assert expected.disk_bytes / 2**30 == pytest.approx(gibibytes, rel=0.03)


@pytest.mark.parametrize(("epsilon", "lowest", "highest"), [(1.0, 38.7, 56.0), (10.0, 54.3, 68.9)])
def test_accuracy_of_the_authors_teachers_is_told_by_runs_with_as_clear_votes(
    epsilon: float, lowest: float, highest: float
) -> None:
    expected = expect(planned(MNIST, epsilon, preset="paper"), MNIST)
    assert lowest < expected.accuracy_middle < highest < expected.accuracy_high
    assert f"{lowest:.0f} to {highest:.0f} %" in expected.basis
    assert (expected.accuracy_low, expected.measured) == (expected.guessing, False)


def test_one_vote_of_the_authors_teachers_is_expected_to_teach_nothing() -> None:
    few = MNIST.model_copy(update={"num_units": 6000})
    expected = expect(planned(few, 1.0, preset="paper"), few)
    assert expected.accuracy_middle == expected.guessing
    assert "taught nothing" in expected.basis


@pytest.mark.parametrize("changes", [{"channels": 3, "height": 16, "width": 16}, {"class_names": tuple("abcde")}])
def test_other_images_by_the_authors_teachers_are_unknown(changes: dict[str, Any]) -> None:
    other = MNIST.model_copy(update=changes)
    assert "Unknown" in expect(planned(other, 10.0, preset="paper"), other).basis


def test_what_votes_teach_is_as_measured() -> None:
    """By runs without changes that a budget could pay for."""
    rows = [json.loads(line) for line in (ROOT / "benchmarks/results/authors.jsonl").read_text().splitlines()]
    found: dict[MeasuredVotes | None, list[float]] = {}
    for row in rows:
        published = COMMANDS[PRESETS[row["dataset"]]][0 if row["published_epsilon"] == 1 else 1]
        if row["like"] or row.get("changes") or row["teachers"] < 40:
            continue
        for point in row["points"]:
            known = find_measured_votes(point["votes"], published.noise_stddev / published.num_teachers)
            if point["votes"] < 200:
                found.setdefault(known, []).append(round(point["last"], 1))
    assert max(found.pop(None)) <= 12, "about as much as guessing"
    assert {known: (min(values), max(values)) for known, values in found.items() if known} == {
        known: (known.lowest, known.highest) for known in MEASURED_VOTES
    }


def test_planned_time_of_the_authors_teachers_is_that_of_measured_runs() -> None:
    """Up to twice as much or half, of runs in one process."""
    rows = [json.loads(line) for line in (ROOT / "benchmarks/results/authors.jsonl").read_text().splitlines()]
    alone = [row for row in rows if not row["like"] and not row.get("processes")]
    measured = [(row, point) for row in alone for point in row["points"]]
    for row, point in measured:
        schema = SCHEMAS[row["dataset"]].model_copy(update={"num_units": row["records"]})
        method = build_published(PRESETS[row["dataset"]], schema, row["published_epsilon"])
        method = method.model_copy(
            update={"num_teachers": row["teachers"], "steps": point["votes"], "noise_stddev": 1_000_000}
        )
        spec = TrainingSpec(method=method, epsilon=1.0, delta=1e-5)
        assert 1 / 2 < resources.expect_seconds(spec, schema, (), None) / point["seconds"] < 2, point
    assert measured
