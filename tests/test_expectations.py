"""What a plan says of jobs like it comes from the table, and is called a guess where nothing was measured."""

import itertools
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.environment import ROOT
from benchmarks.panel import compare_plans
from datalens_service.cli import options
from datalens_service.data.dataset import Schema
from datalens_service.methods import DataLens, LabelledPool, PooledMoments, Scattering
from datalens_service.methods.voting.teachers import ConvTeacher
from datalens_service.models.encoders import ImagenetLite0, imagenet_lite0
from datalens_service.planning import expectations, resources
from datalens_service.planning.expectations import compare, expect, is_of_little_use, measure_machine, read_table
from datalens_service.planning.job_names import OFFERED, POOL
from datalens_service.planning.presets import preset
from datalens_service.planning.reached import Measured
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.accounting import epsilon_for_mu, mu_for_epsilon
from datalens_service.spec import TrainingSpec

GREY = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=1000)


def row(dataset: str, units: int, epsilon: float, accuracy: float, seconds: float = 10.0) -> Measured:
    """Of the preset fast, with a spread of one point."""
    return Measured(
        dataset=dataset,
        preset="fast",
        method="pooled_moments",
        units=units,
        epsilon=epsilon,
        accuracies=(accuracy - 1, accuracy, accuracy + 1),
        training_seconds=seconds,
        calibration_seconds=0.002,
        synthetic_images=100,
        epochs=2,
        commit="0",
        machine="one",
    )


ROWS = [
    row("easy", 100, 0.1, 20),
    row("easy", 10_000, 0.1, 60),
    row("easy", 10_000, 3, 90, 30.0),
    row("hard", 100, 0.1, 15),
    row("hard", 10_000, 0.1, 40),
    row("hard", 10_000, 3, 70, 50.0),
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "expectations.json"
    path.write_text(json.dumps([item.model_dump(mode="json") for item in ROWS]))
    monkeypatch.setattr(expectations, "TABLE", path)
    return path


def planned(schema: Schema, epsilon: float, **chosen: Any) -> TrainingSpec:
    return RequestedSpec(epsilon=epsilon, **(chosen or {"preset": "fast"})).resolve(schema)


@pytest.mark.usefixtures("table")
def test_it_lies_between_the_hard_and_the_easy_set() -> None:
    schema = GREY.model_copy(update={"num_units": 10_000})
    expected = expect(planned(schema, 3.0), schema)
    assert (expected.accuracy_low, expected.accuracy_high) == (68.0, 92.0)
    assert expected.training_seconds == 50.0


@pytest.mark.usefixtures("table")
def test_what_n_and_epsilon_are_made_of_changes_nothing_as_long_as_evidence_is_the_same() -> None:
    few, many = (GREY.model_copy(update={"num_units": units}) for units in (2_000, 8_000))
    epsilon = epsilon_for_mu(4 * mu_for_epsilon(0.3, 1e-5), 1e-5)
    reached = [
        expect(planned(schema, spent).model_copy(update={"delta": 1e-5}), schema)
        for schema, spent in ((few, epsilon), (many, 0.3))
    ]
    assert reached[0].accuracy_low == pytest.approx(reached[1].accuracy_low, abs=0.2)
    assert 15 - 2 < reached[0].accuracy_low < 70 - 2
    assert 20 + 2 < reached[0].accuracy_high < 90 + 2


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("units", "epsilon", "warned"), [(100, 0.1, True), (100, 10.0, False), (10_000, 10.0, False)])
def test_where_jobs_hardly_do_better_than_guessing_it_says_so(units: int, epsilon: float, warned: bool) -> None:
    schema = GREY.model_copy(update={"num_units": units})
    expected = expect(planned(schema, epsilon), schema)
    assert bool(expected.warning) is warned


@pytest.mark.usefixtures("table")
def test_a_slower_machine_takes_longer() -> None:
    usual, slow = (expect(planned(GREY, 1.0), GREY, seconds) for seconds in (0.002, 0.006))
    assert slow.training_seconds == pytest.approx(3 * usual.training_seconds)
    assert slow.accuracy_low == usual.accuracy_low


def test_every_row_counts_by_its_own_calibration(table: Path) -> None:
    """A row that was measured on a machine half as fast says half the time."""
    rows = [item.model_copy(update={"calibration_seconds": 0.004}) if item.units == 10_000 else item for item in ROWS]
    table.write_text(json.dumps([item.model_dump(mode="json") for item in rows]))
    schema = GREY.model_copy(update={"num_units": 10_000})
    expected = expect(planned(schema, 3.0), schema, 0.002)
    assert expected.training_seconds == 25.0


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "changed",
    [
        {"channels": 3},
        {"height": 64, "width": 64},
        {"class_names": ("yes", "no")},
        {"records_per_unit": 2},
    ],
)
def test_what_was_not_measured_is_guessed_in_a_wider_range(changed: dict[str, Any]) -> None:
    schema = GREY.model_copy(update=changed)
    known, guessed = expect(planned(GREY, 1.0), GREY), expect(planned(schema, 1.0), schema)
    assert (known.measured, guessed.measured) == (True, False)
    assert guessed.accuracy_high - guessed.accuracy_low > known.accuracy_high - known.accuracy_low
    assert 100 / schema.num_classes <= guessed.accuracy_low <= guessed.accuracy_high <= 100
    assert guessed.training_seconds > 0


@pytest.mark.usefixtures("table")
def test_other_methods_settings_and_budgets_are_guessed() -> None:
    method = preset("fast", GREY, 1.0).model_copy(update={"means_share": 0.3})
    much, few = (GREY.model_copy(update={"num_units": units}) for units in (100_000, 20))
    others = (planned(GREY, 1.0, preset="balanced"), planned(GREY, 1.0, method=method))
    assert not expect(planned(much, 11.0), much).measured
    assert not expect(planned(few, 1.0), few).measured
    assert not any(expect(spec, GREY).measured for spec in others)


def test_a_preset_without_weights_quotes_no_jobs_that_had_them(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(channels=3, height=32, width=32, class_names=tuple("0123456789"), num_units=5000)
    for installed in (True, False):
        monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name, found=installed: found or None)
        assert expect(planned(schema, 1.0, preset="classifier"), schema).measured == installed


def test_a_single_data_set_stands_for_harder_and_easier_ones(table: Path) -> None:
    both = expect(planned(GREY, 1.0), GREY)
    table.write_text(json.dumps([item.model_dump(mode="json") for item in ROWS if item.dataset == "easy"]))
    alone = expect(planned(GREY, 1.0), GREY)
    assert alone.measured
    assert alone.accuracy_low < both.accuracy_high - 4 < both.accuracy_high < alone.accuracy_high


def test_the_table_of_the_package_is_of_clean_commits_and_both_sets() -> None:
    rows = read_table()
    assert {"auto", "fast", "classifier"} < {item.preset for item in rows} <= set(OFFERED)
    assert {"mnist", "fashion_mnist", "cifar10", "smiles64"} == {item.dataset for item in rows}
    assert all(item.commit and not item.commit.endswith("+") for item in rows)


@pytest.mark.parametrize("name", ["fast", "classifier"])
def test_it_covers_usual_sizes_and_budgets(name: str) -> None:
    for units in (500, 3000, 10_000):
        schema = GREY.model_copy(update={"num_units": units})
        for epsilon in (0.2, 1.0, 3.0, 10.0):
            assert expect(planned(schema, epsilon, preset=name), schema).measured


def test_the_machine_is_measured_once() -> None:
    assert 0 < measure_machine() == measure_machine()


@pytest.mark.usefixtures("table")
def test_jobs_that_start_from_public_images_are_guessed() -> None:
    spec = planned(GREY, 10.0)
    assert expect(spec, GREY).measured
    assert not expect(spec.model_copy(update={"public_data": "ds_1"}), GREY).measured


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


def test_plans_contain_what_the_panel_reached_and_are_no_wider_than_helps() -> None:
    compared = compare_plans()
    assert sum(one.inside for one in compared) >= 0.9 * len(compared) > 0
    photographs = next(one for one in compared if one.name == "cifar10-5000-5")
    assert photographs.high - photographs.low < 30


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


def test_class_averages_may_be_nothing_where_evidence_is_scarce() -> None:
    schemas = [
        GREY.model_copy(update={"num_units": units, "class_names": tuple("0123456789")}) for units in (500, 5_000)
    ]
    scarce, fair = (expect(planned(schema, 1.0), schema) for schema in schemas)
    assert scarce.class_averages_low == scarce.guessing
    assert fair.class_averages_low > fair.guessing


def test_more_evidence_never_lowers_a_guess() -> None:
    ends = []
    for units in (20, 200, 2_000, 20_000, 200_000):
        schema = GREY.model_copy(update={"num_units": units, "channels": 3, "height": 32, "width": 32})
        expected = expect(planned(schema, 1.0), schema)
        ends.append((expected.accuracy_low, expected.accuracy_high))
    assert all(earlier <= later for pair in zip(*ends, strict=True) for earlier, later in itertools.pairwise(pair))


@pytest.mark.parametrize(("classifier", "labelled"), [(Scattering(), 1), (Scattering(encoder=ImagenetLite0()), 4)])
def test_labelling_a_pool_and_crops_of_it_has_its_time(classifier: Scattering, labelled: int) -> None:
    spec = TrainingSpec(method=LabelledPool(classifier=classifier), epsilon=1.0, public_data="ds_1")
    phases = expectations.expect_phases(spec, GREY)
    assert phases["fitting"] == pytest.approx(labelled * phases["training"], abs=0.3)


def test_one_seed_says_the_less_the_fewer_images_it_had() -> None:
    once = [row("easy", units, 1.0, 50).model_copy(update={"accuracies": (50.0,)}) for units in (500, 2_000, 60_000)]
    few, more, many = (each.spread for each in once)
    assert few > more > 3 > many
    assert row("easy", 500, 1.0, 50).spread == 1


FACES = Schema(channels=3, height=64, width=64, class_names=("a", "b"), num_units=180_000)
HAIR = FACES.model_copy(update={"class_names": ("a", "b", "c"), "num_units": 240_000})
MNIST = GREY.model_copy(update={"num_units": 60_000})


@pytest.mark.parametrize(
    ("name", "schema", "gibibytes"),
    [("paper", MNIST, 25), ("paper_celeba_gender", FACES, 150), ("paper_celeba_hair", HAIR, 206)],
)
def test_the_authors_teachers_lie_on_a_disk_as_large_as_measured(name: str, schema: Schema, gibibytes: float) -> None:
    expected = expect(planned(schema, 1.0, preset=name), schema)
    assert expected.disk_bytes / 2**30 == pytest.approx(gibibytes, rel=0.03)
    assert "Unknown" in expected.basis


def test_planned_time_of_the_authors_teachers_is_that_of_measured_runs() -> None:
    """Up to twice as much or half."""
    rows = [json.loads(line) for line in (ROOT / "benchmarks/results/authors.jsonl").read_text().splitlines()]
    measured = [(row["teachers"], point) for row in rows if not row["like"] for point in row["points"]]
    for teachers, point in measured:
        schema = GREY.model_copy(update={"num_units": 15 * teachers})
        method = DataLens(teacher=ConvTeacher(), num_teachers=teachers, steps=point["votes"])
        spec = TrainingSpec(method=method, epsilon=1.0, delta=1e-5)
        assert 1 / 2 < resources.expect_seconds(spec, schema, (), None) / point["seconds"] < 2, point
    assert measured
