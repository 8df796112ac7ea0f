"""A verdict: the meaning of figures for the owner of the private images, in a sentence or two. For the owner alone.

It rests on private figures, so no view that may be passed on holds it. Differences within two standard errors are
ties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

_OWN: Final = ("accuracy", "classifier_accuracy", "accuracy_holdout", "classifier_accuracy_holdout")
_SIMPLER: Final = {
    "floor_majority": "always naming the most frequent class",
    "floor_averages": "noisy class averages alone",
    "floor_moments": "noisy means and covariances alone",
}
_ERRORS_OF_A_TIE: Final = 2
_UNKNOWN_ERROR: Final = 1.0
"""Error in points, where the number of test images is not known."""
_APART: Final = 2.0
"""Points that whole numbers show well enough."""
_UNEQUAL: Final = 1.25
"""Ratio of the most frequent class to equal classes, in test images, from which averages over classes are stated."""

_LEARNED: Final = "Classifiers that learn from these images are"

Grade = Literal["unknown", "useless", "worse", "even", "useful"]


class Verdict(NamedTuple):
    """A grade, and the sentences that explain it.

    Attributes:
        grade: For training classifiers: worse and even are against the best simpler release.
    """

    grade: Grade
    sentence: str


class ClassShare(NamedTuple):
    """Test images of one class, and the percentage of them that were labelled rightly."""

    images: int
    accuracy: float


class Figures(NamedTuple):
    """The basis of a verdict: percentages of test images that are labelled rightly; None where not measured.

    Attributes:
        guessing: Accuracy of guesses, over equal classes.
        accuracy: Accuracy of the classifier, or of one that learned from the images.
        spread: Standard deviation over seeds of what is compared, in points.
        simpler: Name and accuracy of the best of the simpler ways.
        real: Accuracy of the same classifier after training on the real images.
        real_spread: Standard deviation of that over seeds, in points.
        linear: Accuracy of the linear discriminant of the same images.
        averaged: True if classes are unequal and means over classes are compared: `simpler`, `real` and `linear` are
            such means then.
        classes: Those with test images; empty where they are not known.
    """

    classifier: bool
    guessing: float
    accuracy: float | None = None
    spread: float = 0.0
    seeds: int = 1
    simpler: tuple[str, float] | None = None
    real: float | None = None
    real_spread: float | None = None
    linear: float | None = None
    averaged: bool = False
    classes: tuple[ClassShare, ...] = ()

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Figures:
        """Read the figures of an owner's report, given as JSON; of an older one too."""
        measures = {one["name"]: one for one in report["measures"]}
        own = next((measures[name] for name in _OWN if name in measures), None)
        known = cls(
            classifier=report.get("confusion") is not None or "classifier_accuracy" in measures,
            guessing=100 / len(report["dataset"]["public_schema"]["class_names"]),
            accuracy=None if own is None else own["value"],
            seeds=1 if own is None else own.get("seeds", 1),
            classes=tuple(_classes(report)),
        )
        shown = [measures[name] for name in ("accuracy", "ceiling", "discriminant", *_SIMPLER) if name in measures]
        averaged = known.unequal and all(one.get("balanced") is not None for one in shown)
        value, spread = ("balanced", "balanced_spread") if averaged else ("value", "spread")
        simpler = [(words, measures[name][value]) for name, words in _SIMPLER.items() if name in measures]
        return known._replace(
            spread=(own or {}).get(spread) or 0.0,
            simpler=max(simpler, key=lambda one: one[1], default=None),
            real=measures.get("ceiling", {}).get(value),
            real_spread=measures.get("ceiling", {}).get(spread),
            linear=measures.get("discriminant", {}).get(value),
            averaged=averaged,
        )

    @property
    def compared(self) -> float | None:
        """The figure of this result that is compared with others."""
        return self.balanced if self.averaged else self.accuracy

    @property
    def balanced(self) -> float | None:
        """Return the mean accuracy over classes."""
        return sum(one.accuracy for one in self.classes) / len(self.classes) if self.classes else None

    @property
    def majority(self) -> float:
        """Return the accuracy of always naming the most frequent class."""
        images = [one.images for one in self.classes]
        return 100 * max(images) / sum(images) if images else self.guessing

    @property
    def unequal(self) -> bool:
        """Tell whether classes are so unequal that accuracy hides those that fare badly."""
        return self.majority > _UNEQUAL * self.guessing

    def tie(self, percent: float) -> float:
        """Return the difference from `percent`, in points, that means nothing."""
        of_classes = math.sqrt(percent * (100 - percent) * sum(1 / one.images for one in self.classes))
        sampled = of_classes / len(self.classes) if self.classes else _UNKNOWN_ERROR
        return _ERRORS_OF_A_TIE * math.hypot(sampled, self.spread / math.sqrt(self.seeds))

    def tells_classes_apart(self) -> bool:
        """Tell whether classes are told apart better than by guessing, each class counting alike."""
        reached = self.accuracy if self.balanced is None else self.balanced
        return reached is not None and reached > self.guessing + self.tie(self.guessing)


def judge(figures: Figures) -> Verdict:
    """Return the verdict on a released model."""
    if figures.accuracy is None or figures.compared is None:
        thing = "this classifier is" if figures.classifier else "these images are"
        return Verdict("unknown", f"How useful {thing} was not measured on real test images.")
    if not figures.tells_classes_apart():
        return Verdict("useless", _useless(figures, figures.accuracy))
    grade, sentence = _compare(figures, figures.compared)
    said = (sentence, _say_linear(figures, figures.compared), _of_unequal_classes(figures, figures.accuracy))
    return Verdict(grade, " ".join(filter(None, said)))


def judge_pair(first: Figures, second: Figures) -> str:
    """Compare two released models of one data set; empty where one was not measured."""
    one, other = first.compared, second.compared
    if one is None or other is None:
        return ""
    does = "labels test images" if first.classifier and second.classifier else "trains classifiers"
    if abs(one - other) <= math.hypot(first.tie(one), second.tie(other)):
        return f"Neither {does} better than the other: {_against(one, other)}."
    return f"The {'first' if one > other else 'second'} {does} better: {_against(max(one, other), min(one, other))}."


def _useless(figures: Figures, accuracy: float) -> str:
    reached = _against(accuracy if figures.balanced is None else figures.balanced, figures.guessing)
    averaged = ", averaged over classes" if figures.unequal else ""
    if figures.classifier:
        return f"The classifier labels no better than guessing: {reached}{averaged}. Do not pass this classifier on."
    hard = figures.real is not None and figures.real <= figures.majority + figures.tie(figures.majority)
    also = " Real images do no better here." if hard else ""
    return f"{_LEARNED} no better than guessing: {reached}{averaged}.{also} Do not pass these images on for training."


def _compare(figures: Figures, accuracy: float) -> Verdict:
    """Compare with the best simpler way, or without one with guessing."""
    if figures.classifier:
        return Verdict(
            "useful", f"The classifier labels test images better than guessing: {_against(accuracy, figures.guessing)}."
        )
    real = (", averaged over classes" if figures.averaged else "") + _say_real(figures)
    if figures.simpler is None:
        reached = _against(accuracy, figures.guessing)
        return Verdict("useful", f"{_LEARNED} better than guessing: {reached}{real}.")
    simpler, reached = figures.simpler[0], _against(accuracy, figures.simpler[1])
    difference, tie = accuracy - figures.simpler[1], figures.tie(figures.simpler[1])
    if difference > tie:
        return Verdict("useful", f"{_LEARNED} better than {simpler}: {reached}{real}.")
    if difference >= -tie:
        reached = _against(accuracy, figures.simpler[1], digits=1)
        said = f"{_LEARNED} about as good as {simpler}: {reached}, within the error{real}."
        return Verdict("even", f"{said} For training, these images add little to that.")
    warning = "Do not pass these images on for training."
    return Verdict("worse", f"{_LEARNED} worse than {simpler}: {reached}{real}. {warning}")


def _say_real(figures: Figures) -> str:
    if figures.real is None:
        return ""
    spread = "" if figures.real_spread is None else f" ± {_rounded(figures.real_spread, digits=1)}"
    return f"; trained on the real images, the same classifier reaches {_rounded(figures.real)}{spread} %"


def _say_linear(figures: Figures, accuracy: float) -> str:
    if figures.linear is None or figures.linear <= accuracy + figures.tie(accuracy):
        return ""
    return f"The linear discriminant of the same images is better, with {_rounded(figures.linear)} %."


def _of_unequal_classes(figures: Figures, accuracy: float) -> str:
    if not figures.unequal or figures.balanced is None:
        return ""
    if figures.averaged:
        return (
            f"Classes are unequal: of all test images, {_rounded(accuracy)} % are labelled rightly; always naming the "
            f"most frequent class is right for {_rounded(figures.majority)} %."
        )
    return (
        f"Classes are unequal: averaged over them, {_rounded(figures.balanced)} % are right (guessing: "
        f"{_rounded(figures.guessing)} %); always naming the most frequent one is right for "
        f"{_rounded(figures.majority)} %."
    )


def _against(one: float, other: float, digits: int = 0) -> str:
    """Format two figures with as many digits as tell them apart, at least."""
    digits = digits if abs(one - other) >= _APART else 1
    return f"{_rounded(one, digits)} against {_rounded(other, digits)} %"


def _rounded(percent: float, digits: int = 0) -> str:
    """Round as tables do, or to whole numbers with halves up."""
    return f"{percent:.{digits}f}" if digits else str(math.floor(percent + 0.5))


def _classes(report: Mapping[str, Any]) -> Sequence[ClassShare]:
    """Read the classes of the standard classifier, or of a released one."""
    if report.get("confusion") is not None:
        rows = [(sum(counts), counts[index]) for index, counts in enumerate(report["confusion"]["counts"])]
        return [ClassShare(images, 100 * right / images) for images, right in rows if images]
    lines: list[dict[str, Any]] = report.get("per_class") or []
    first = [line for line in lines if line["classifier"] == lines[0]["classifier"]]
    return [ClassShare(line["test_images"], line["accuracy"]) for line in first if line["accuracy"] is not None]


def judge_attack(auc: float, interval: tuple[float, float], allowed: float | None) -> str:
    """Judge an attack on membership in a sentence.

    Args:
        auc: Area under the ROC curve; one half is chance.
        interval: 95 % interval of the area.
        allowed: Largest area that μ allows; None where no μ holds.
    """
    low, high = interval
    reached = f"area {auc:.3f} ({low:.3f} to {high:.3f}), where a coin has 0.5"
    if low <= 0.5:
        return f"It was no better than guessing: {reached}."
    if allowed is None:
        return f"It tells members from others: {reached}. No guarantee limits that."
    if low > allowed:
        return (
            f"It tells members from others better than the guarantee allows: {reached} and {allowed:.3f} "
            "is the most. Something is wrong: pass nothing on, and report it."
        )
    return f"It tells members from others, within the guarantee: {reached} and at most {allowed:.3f}."


def judge_inversion(gradients: str, error: float, interval: tuple[float, float]) -> str:
    """Judge what an attacker sees of images in raw or released gradients; an error of 1 is that of an even grey."""
    low, high = interval
    seen = "images better than" if high < 1 else "no more than"
    errors = f"{error:.3f} ({low:.3f} to {high:.3f})"
    return f"Gradients, {gradients}, show {seen} an even grey: error {errors}, grey about 1."
