"""What a planned job is good for, in a sentence, and what would change that: from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from datalens_service.data.dataset import Schema
from datalens_service.errors import LowUtility
from datalens_service.methods.appearance import FAIR_EVIDENCE, LEAST_EVIDENCE, Looks, judge_looks
from datalens_service.planning.curves import count_planned_evidence
from datalens_service.planning.reached import Expectation, tell_range
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.spec import TrainingSpec
from datalens_service.voices import speak

_BETTER: Final = 5
"""Points by which a classifier is better than images, to be named."""
_SEEN: Final[dict[Looks, str]] = {
    "noise": "Not good for looking at: mostly noise.",
    "soft": "Good for rough shapes and tones of what images of a class have at the same place, not for detail.",
    "recognisable": "Good for looking at shapes, less at texture.",
    "like photographs": "Good for looking at: public images, with labels that were learned.",
}
_SCARCE: Final = "Good for rough tones of a class at most, hardly for looking at."


def advise(spec: TrainingSpec, schema: Schema, expected: Expectation, labels: Expectation | None) -> dict[str, Any]:
    """Members `looks`, `verdict` and `warning` of an expectation; `labels` is what is expected of a classifier instead
    of images."""
    looks = judge_looks(spec.method, schema, spec.limit_units(schema))
    if is_of_little_use(spec, schema):
        verdict = speak(_say_little(spec, schema))
        return {"looks": looks, "verdict": verdict, "warning": verdict}
    if spec.method.result != "generator":
        return {"looks": looks, "verdict": _say_labels(expected)}
    scarce = looks == "soft" and count_planned_evidence(spec, schema) < FAIR_EVIDENCE
    seen = [_SCARCE] if scarce else [_SEEN[looks]] if looks else []
    return {"looks": looks, "verdict": " ".join([*seen, *_say_accuracy(expected, labels)])}


def is_of_little_use(spec: TrainingSpec, schema: Schema) -> bool:
    """Whether the budget drowns what the images of a class have in common, whatever the method."""
    return count_planned_evidence(spec, schema) < LEAST_EVIDENCE


def check_utility(spec: TrainingSpec, schema: Schema) -> None:
    """Refuse what is of little use.

    Raises:
        LowUtility: It is; the sentence says what would change that.
    """
    if is_of_little_use(spec, schema):
        raise LowUtility(f"{_say_little(spec, schema)} To go on all the same, ⟦accept_low_utility⟧.")


def _say_little(spec: TrainingSpec, schema: Schema) -> str:
    per_class = max(1, schema.num_units // schema.num_classes)
    needed = FAIR_EVIDENCE * schema.num_classes / mu_for_epsilon(spec.epsilon, spec.delta_at(schema))
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return (
        f"Of little use: about {per_class:,} {schema.unit}{'' if per_class == 1 else 's'} of a class tell little more "
        f"than noise at this ⟦spec.epsilon⟧. About {math.ceil(needed / digits) * digits:,} {schema.unit}s in all would "
        "do, or a larger ⟦spec.epsilon⟧, fewer classes, or public images of a similar kind."
    )


def _say_labels(expected: Expectation) -> str:
    return (
        f"Good for labels: {_reach(expected)} are expected to be right; by guessing, where classes are equal, "
        f"{expected.guessing:.0f} %."
    )


def _say_accuracy(expected: Expectation, labels: Expectation | None) -> Iterator[str]:
    yield f"Classifiers that learn from such images are expected to reach {_reach(expected)}."
    yield (
        f"Noisy class averages would reach perhaps "
        f"{tell_range(expected.class_averages_low, expected.class_averages_high)}; guessing, where classes are equal, "
        f"{expected.guessing:.0f} %."
    )
    if not expected.measured and expected.accuracy_high < expected.class_averages_high:
        yield "By these figures such images may teach no better than class averages."
    if labels is not None and labels.middle > expected.middle + _BETTER:
        yield f"Labels only? A classifier is expected to reach {_reach(labels)}."


def _reach(expected: Expectation) -> str:
    guessed = "" if expected.measured else " (a guess)"
    return f"{tell_range(expected.accuracy_low, expected.accuracy_high)}{guessed}"
