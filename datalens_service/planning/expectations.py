"""The expected results of a job, by public facts and a table of jobs that were measured on sets of many kinds.

`forecast.py` reads accuracy off the table, `resources.py` time and memory; `advice.py` says what that means.
"""

import math
from collections.abc import Sequence
from typing import Final

from datalens_service.base.errors import DatalensError, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import TopAgg
from datalens_service.methods import AnyMethod
from datalens_service.methods.expected_quality import is_drowned, judge_looks
from datalens_service.methods.voting.voting_method import TeacherSettings
from datalens_service.planning import resources
from datalens_service.planning.advice import count_planned_evidence, judge_expectation
from datalens_service.planning.expected_results import Alternative, Comparison, Expectation
from datalens_service.planning.forecast import REAL, ForecastFacts, Range, forecast, list_usable
from datalens_service.planning.job_names import OFFERED, POOL, TEACH, TITLES, choose
from datalens_service.planning.measured import NAMES, read_rows
from datalens_service.planning.presets import DEFAULT_PRESET, explain_auto, preset
from datalens_service.planning.published import MEASURED_CLASSES, find_measured_votes
from datalens_service.spec import TrainingSpec, check_shares

LOOK: Final = "look"
CLASSIFIER: Final = "classifier"
_OF_CHOICES: Final = {LOOK: DEFAULT_PRESET, TEACH: TEACH, CLASSIFIER: CLASSIFIER}
_PLACEHOLDER: Final = "public"
"""The name of public images that are not named yet."""
_NINE_OF_TEN: Final = "nine of ten sets lay in such a range, made without them."
_MEASURED: Final = "Measured on sets with as many classes, pixels and colours at such an ε, as {names}: " + _NINE_OF_TEN
_LIKE: Final = "This accuracy is a guess. The measured sets most like yours are {names}, and others: " + _NINE_OF_TEN
_UNLIKE: Final = (
    "This accuracy is a guess, and its range is wide: no measured set has about as many images, classes, pixels and "
    "colours at such an ε."
)
_OTHER: Final = (
    "This accuracy is a guess, and its range is wide: it rests on other methods, because this one was not measured "
    "with such settings on sets of many kinds."
)
_POOL: Final = (
    "From guessing to what a private classifier reaches: it depends on how alike the public images are to the private "
    "ones, which no plan can see."
)
_VOTES: Final = (
    "This accuracy is a guess. In trials without a guarantee, images of digits and of clothes taught {low:.0f} to "
    "{high:.0f} % after about as many votes with as little noise, by an earlier judge."
)
_FEW_VOTES: Final = (
    "This accuracy is a guess: so few votes, or votes with so much noise, taught nothing on any set that was tried."
)
_UNTRIED_VOTES: Final = (
    "Unknown: such teachers were measured on grey images of ten classes alone, so the range is meaningless."
)

Shares = Sequence[float] | None
"""Frequencies of the classes as their owner declares them public; None where nothing is declared."""


def expect(
    spec: TrainingSpec,
    schema: Schema,
    calibration_seconds: float | None = None,
    shares: Shares = None,
    teaching: bool = False,
) -> Expectation:
    """Return what is expected of a job, with a verdict.

    Args:
        calibration_seconds: Speed of the machine; None takes that of the table.
        shares: Declared frequencies of the classes: with them accuracies are shares of all images, and begin at the
            most frequent class; without them they are means over classes.
        teaching: True if the request says that images are to teach; they may be the same as those to look at.

    Raises:
        InvalidSpec: There is not one frequency for each class.
    """
    expected = estimate(spec, schema, calibration_seconds, shares)
    labels = _expect_labels(spec, schema, shares)
    teaching = teaching or _find_choice(spec, schema) == TEACH
    return expected.model_copy(update=judge_expectation(spec, schema, expected, labels, teaching=teaching))


def estimate(
    spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None, shares: Shares = None
) -> Expectation:
    """Estimate accuracy, time and memory alone."""
    facts = read_facts(spec, schema, shares)
    averages, real = forecast("class_averages", facts), forecast(REAL, facts)
    reached, basis = _rest_on_table(spec, schema, facts)
    return Expectation(
        accuracy_low=_down(reached.low),
        accuracy_middle=round(reached.middle, 1),
        accuracy_high=_up(reached.high),
        averaged=shares is None,
        measured=reached.measured,
        class_averages_low=_down(averages.low),
        class_averages_high=_up(averages.high),
        real_low=_down(real.low),
        real_high=_up(real.high),
        guessing=round(100 * facts.guessing, 1),
        training_seconds=round(resources.expect_seconds(spec, schema, read_rows(), calibration_seconds), 1),
        memory_bytes=resources.expect_memory(spec.method, schema),
        disk_bytes=resources.expect_disk(spec.method, schema),
        basis=basis,
        warning="",
    )


def read_facts(spec: TrainingSpec, schema: Schema, shares: Shares) -> ForecastFacts:
    """Read the facts of a planned job.

    Raises:
        InvalidSpec: There is not one frequency for each class.
    """
    check_shares(shares, schema)
    majority = None if shares is None else max(shares) / sum(shares)
    evidence = count_planned_evidence(spec, schema) / schema.records_per_unit
    per_class = schema.num_units / schema.num_classes
    return ForecastFacts(
        evidence, per_class, schema.num_classes, schema.height * schema.width, schema.channels > 1, majority
    )


def expect_range(spec: TrainingSpec, schema: Schema, facts: ForecastFacts) -> Range:
    """Return the range of a job with these facts, which may be others than those of its schema and its ε."""
    return _rest_on_table(spec, schema, facts)[0]


def _rest_on_table(spec: TrainingSpec, schema: Schema, facts: ForecastFacts) -> tuple[Range, str]:
    """Return the range of what learned from the result, and what it rests on in a sentence."""
    choice = _find_choice(spec, schema)
    reached = forecast(choice, facts)
    if spec.public_data is not None:
        best = max(reached.high, forecast(CLASSIFIER, facts).high)
        return reached._replace(low=100 * facts.guessing, high=best, measured=False), _POOL
    if resources.has_conv(spec.method):
        return _rest_on_votes(spec.method, schema, spec.limit_units(schema), 100 * facts.guessing)
    if not _is_of_auto(spec, schema, choice):
        low = 100 * facts.guessing
        if not is_drowned(spec.method, schema, spec.limit_units(schema)):
            low = (low + reached.low) / 2
        high = reached.high + (100 - reached.high) / 2
        return Range(low, (low + reached.middle) / 2, high), _OTHER
    if not reached.alike:
        return reached, _UNLIKE
    names = ", ".join(NAMES.get(name, name) for name in reached.alike)
    return reached, (_MEASURED if reached.measured else _LIKE).format(names=names)


def _rest_on_votes(method: TeacherSettings, schema: Schema, ledger_units: int, guessing: float) -> tuple[Range, str]:
    """Return the range of the authors' teachers, which were measured without a guarantee and without a warm start."""
    plan = method.plan(schema, ledger_units)
    mechanism = plan.releases[-1].mechanism
    if isinstance(mechanism, TopAgg) and len(plan.releases) == 1:
        known = find_measured_votes(plan.steps, mechanism.noise_stddev / method.num_teachers)
        if known is None:
            return Range(guessing, guessing, (100 + guessing) / 2), _FEW_VOTES
        if schema.channels == 1 and schema.num_classes == MEASURED_CLASSES:
            middle, high = (known.lowest + known.highest) / 2, (100 + known.highest) / 2
            return Range(guessing, middle, high), _VOTES.format(low=known.lowest, high=known.highest)
    return Range(guessing, (100 + 3 * guessing) / 4, 100.0), _UNTRIED_VOTES


def _find_choice(spec: TrainingSpec, schema: Schema) -> str:
    """Find the column of the table that a job belongs to."""
    if spec.method.result != "generator":
        return CLASSIFIER
    return TEACH if _makes(TEACH, spec, schema) and not _makes(DEFAULT_PRESET, spec, schema) else LOOK


def _is_of_auto(spec: TrainingSpec, schema: Schema, choice: str) -> bool:
    """Tell whether the job is one that a choice of auto makes, by an encoder that was measured on such images."""
    encoder = spec.method.public_inputs().encoder
    name = None if encoder is None else encoder.name
    known = {row.encoder for row in list_usable(choice) if (row.channels > 1) == (schema.channels > 1)}
    return _makes(_OF_CHOICES[choice], spec, schema) and (choice != CLASSIFIER or name in known)


def _makes(name: str, spec: TrainingSpec, schema: Schema) -> bool:
    try:
        return choose(name, schema, spec.epsilon) == spec.method
    except InvalidSpec:
        return False


def _expect_labels(spec: TrainingSpec, schema: Schema, shares: Shares) -> Expectation | None:
    """Estimate the result of a classifier instead of images."""
    if spec.method.result != "generator":
        return None
    try:
        method = preset(CLASSIFIER, schema, spec.epsilon)
        asked = TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta)
        return estimate(asked, schema, shares=shares)
    except DatalensError:
        return None


def compare(
    spec: TrainingSpec,
    schema: Schema,
    calibration_seconds: float | None = None,
    shares: Shares = None,
    teaching: bool = False,
) -> Comparison:
    """Compare every method that could serve, each at the ε of a planned job.

    Where labels are the purpose, a classifier that is expected to be better stands first.
    """
    made: dict[AnyMethod, list[str]] = {}
    for name in (*OFFERED, POOL):
        made.setdefault(choose(name, schema, spec.epsilon), []).append(name)
    found = [_serve(method, names, spec, schema, calibration_seconds, shares) for method, names in made.items()]
    methods = [one for one in found if one is not None]
    best = _find_best_labels(methods)
    methods = [one.model_copy(update={"best_for_labels": one is best}) for one in methods]
    if teaching or _find_choice(spec, schema) != LOOK:
        methods.sort(key=lambda one: not one.best_for_labels)
    return Comparison(methods=methods, reason=explain_auto(schema, spec.epsilon))


def _find_best_labels(methods: Sequence[Alternative]) -> Alternative | None:
    """Find a classifier that is expected to label better than what images of auto teach."""
    taught = [one.accuracy_middle for one in methods if {DEFAULT_PRESET, TEACH} & set(one.choices)]
    classifier = next((one for one in methods if CLASSIFIER in one.choices), None)
    better = classifier is not None and classifier.accuracy_middle > max(taught, default=0.0)
    return classifier if better else None


def _serve(
    method: AnyMethod, names: list[str], spec: TrainingSpec, schema: Schema, calibration: float | None, shares: Shares
) -> Alternative | None:
    """Return a row; None for public images that change nothing, and for a method that these images do not fit."""
    public = spec.public_data or _PLACEHOLDER if method.needs_public_images else None
    if names == [POOL] and public is None:
        return None
    try:
        asked = TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta, public_data=public)
        expected = estimate(asked, schema, calibration, shares)
    except DatalensError:
        return None
    return Alternative(
        choices=names,
        title=", ".join(TITLES[name] for name in names if name != POOL or len(names) == 1),
        method=method.name,
        default=DEFAULT_PRESET in names,
        needs_public_images=public is not None,
        accuracy_low=expected.accuracy_low,
        accuracy_middle=expected.accuracy_middle,
        accuracy_high=expected.accuracy_high,
        measured=expected.measured,
        looks=judge_looks(method, schema, asked.limit_units(schema)),
        training_seconds=expected.training_seconds,
        memory_bytes=expected.memory_bytes,
    )


def _down(percent: float) -> float:
    return math.floor(10 * percent) / 10


def _up(percent: float) -> float:
    return min(100.0, math.ceil(10 * percent) / 10)
