"""Advice on an expectation, in sentences: what a job is good for, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from datalens_service.base.errors import LowUtility
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.methods.expected_quality import FAIR_EVIDENCE, Looks, count_evidence, judge_looks
from datalens_service.methods.facts import LEAST_EVIDENCE
from datalens_service.planning.expected_results import Expectation, tell_range
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.spec import TrainingSpec

_SEEN: Final[dict[Looks, str]] = {
    "noise": "Expect noise rather than pictures.",
    "soft": "Expect blurs: rough shapes and tones, without detail.",
    "recognisable": "Expect recognisable shapes with rough texture.",
    "like photographs": "Expect images that look like the public ones, with labels that were learned.",
}
_SCARCE: Final = "Expect smudges: rough tones of a class at most."


def judge_expectation(
    spec: TrainingSpec, schema: Schema, expected: Expectation, labels: Expectation | None, *, teaching: bool
) -> dict[str, Any]:
    """Return the members `looks`, `verdict` and `warning` of an expectation.

    Args:
        labels: The expectation of a classifier instead of images.
        teaching: True if images are made to learn from, so that labels are the purpose.
    """
    looks = judge_looks(spec.method, schema, spec.limit_units(schema))
    if is_of_little_use(spec, schema):
        verdict = speak(_say_little(spec, schema))
        return {"looks": looks, "verdict": verdict, "warning": verdict}
    if spec.method.result != "generator":
        return {
            "looks": looks,
            "verdict": f"This classifier is expected to label {_reach(expected)}; {_others(expected)}.",
        }
    scarce = looks == "soft" and count_planned_evidence(spec, schema) < FAIR_EVIDENCE
    seen = [_SCARCE] if scarce else [_SEEN[looks]] if looks else []
    better = list(_say_labels(expected, labels))
    sentences = [*seen, *_say_images(expected)]
    return {"looks": looks, "verdict": " ".join([*better, *sentences] if teaching else [*sentences, *better])}


def count_planned_evidence(spec: TrainingSpec, schema: Schema) -> float:
    """Return μ of the budget times the units of a class."""
    return count_evidence(schema, mu_for_epsilon(spec.epsilon, spec.delta_at(schema)))


def is_of_little_use(spec: TrainingSpec, schema: Schema) -> bool:
    """Tell whether the budget drowns what the images of a class have in common, whatever the method."""
    return count_planned_evidence(spec, schema) < LEAST_EVIDENCE


def check_utility(spec: TrainingSpec, schema: Schema) -> None:
    """Refuse a job that is of little use.

    Raises:
        LowUtility: The sentence says what would change that.
    """
    if is_of_little_use(spec, schema):
        raise LowUtility(f"{_say_little(spec, schema)} To go on anyway, ⟦accept_low_utility⟧.")


def _say_little(spec: TrainingSpec, schema: Schema) -> str:
    per_class = max(1, schema.num_units // schema.num_classes)
    needed = FAIR_EVIDENCE * schema.num_classes / mu_for_epsilon(spec.epsilon, spec.delta_at(schema))
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    few, enough = map(schema.privacy_unit.write_count, (per_class, math.ceil(needed / digits) * digits))
    return (
        f"Of little use: about {few} of a class tell little more than noise at this ⟦spec.epsilon⟧. About {enough} in "
        "all would do, or a larger ⟦spec.epsilon⟧, fewer classes, or public images of a similar kind."
    )


def _say_images(expected: Expectation) -> Iterator[str]:
    yield f"A classifier trained on them is expected to label {_reach(expected)}."
    averages = tell_range(expected.class_averages_low, expected.class_averages_high)
    real = tell_range(expected.real_low, expected.real_high)
    yield f"Noisy class averages give {averages}, the real images themselves {real}; {_others(expected)}."


def _say_labels(expected: Expectation, labels: Expectation | None) -> Iterator[str]:
    if labels is not None and labels.accuracy_middle > expected.accuracy_middle:
        yield f"If labels are all you need, train the private classifier: it is expected to label {_reach(labels)}."


def _others(expected: Expectation) -> str:
    if expected.averaged:
        return f"guessing gives {expected.guessing:.0f} %"
    return f"always naming the most frequent class gives {expected.guessing:.0f} %"


def _reach(expected: Expectation) -> str:
    averaged = ", averaged over classes" if expected.averaged else ""
    guessed = "" if expected.measured else " (a guess)"
    reached = tell_range(expected.accuracy_low, expected.accuracy_high)
    return f"{reached} of real images correctly{averaged}{guessed}"
