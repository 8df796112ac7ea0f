"""Arguments for and against calling a release anonymous, in the words of European data protection.

The three questions are those of the Article 29 Working Party, opinion 05/2014 on anonymisation techniques (WP 216),
section 2.2. The decision stays with the reader: recital 26 of the GDPR asks for all means reasonably likely to be used.
docs/legal.md explains them for the person who signs.
"""

from typing import Final, NamedTuple

from datalens_service.base.audience import Public
from datalens_service.base.fields import Frozen
from datalens_service.privacy.guarantee import right_guesses
from datalens_service.report.privacy_statement import PrivacyStatement
from datalens_service.report.result_wording import choose_wording

DECISION: Final = (
    "You decide whether this is anonymous; here are arguments for and against. The questions are those of "
    "the Article 29 Working Party (opinion 05/2014). Recital 26 of the GDPR asks for all means that are reasonably "
    "likely to be used to identify somebody, which depends on who gets the release and on what else they have."
)


class AnonymityQuestion(NamedTuple):
    """One of the three questions, with the arguments that a release provides.

    Attributes:
        speaks_for: Argument for anonymity of released images.
        without_images: Argument for it where no image is released; empty if that makes no difference.
    """

    name: str
    question: str
    speaks_for: str
    speaks_against: str
    without_images: str = ""


SINGLING_OUT: Final = AnonymityQuestion(
    "Singling out",
    "Can somebody isolate the record of one person?",
    "No released figure or image belongs to one record: each comes from noisy sums over many. Whoever accuses "
    "1 in 1,000 {unit}s that took no part falsely finds at most {found} % of the {unit}s that did.",
    "The bound is about one {unit}. Anybody who is in the data set as more than one {unit} is protected less.",
    "No released number belongs to one record: each comes from noisy sums over many. Whoever accuses 1 in 1,000 "
    "{unit}s that took no part falsely finds at most {found} % of the {unit}s that did.",
)
LINKABILITY: Final = AnonymityQuestion(
    "Linkability",
    "Can somebody link two records of one person, here or in another data set?",
    "The release has no identifiers, and an image of it does not stand for a person. Jobs on the same data set draw "
    "on one account, whose limit bounds them all together.",
    "Releases from other data sets about the same people have accounts of their own; their losses add up. Only you "
    "can know whether there are any.",
    "The release names no private {unit}, and no images of one are in it. Jobs on the same data set draw on one "
    "account, whose limit bounds them all together.",
)
INFERENCE: Final = AnonymityQuestion(
    "Inference",
    "Can somebody deduce an attribute of one person?",
    "Whoever knows everything about one {unit} but one of two equally likely values guesses it right in at most "
    "{guessed} of 100 cases (ε = {epsilon} at δ = {delta} for replacing one {unit}). A coin is right in 50.",
    "Facts about everybody in a class are learned, whether or not a person took part. That is the purpose of the "
    "release, and it can concern people.",
)
QUESTIONS: Final = (SINGLING_OUT, LINKABILITY, INFERENCE)


class Criterion(Frozen):
    """One of the three questions, and the answer that a job provides."""

    name: Public[str]
    question: Public[str]
    speaks_for: Public[str]
    speaks_against: Public[str]


class Anonymity(Frozen):
    """The questions of anonymity, for the reader's own decision."""

    decision: Public[str]
    criteria: Public[tuple[Criterion, ...]]


def assess_anonymity(privacy: PrivacyStatement, result: str = "generator") -> Anonymity:
    """Answer the three questions with the figures of one job; public, as those figures are."""
    values = {
        "unit": privacy.privacy_unit.word,
        "found": f"{100 * privacy.headline.true_positive_rate_at_0_1_percent:.2f}",
        "guessed": right_guesses(privacy.replace_one.membership_advantage),
        "epsilon": str(privacy.replace_one.epsilon),
        "delta": str(privacy.delta),
    }
    images = choose_wording(result).synthetic
    return Anonymity(decision=DECISION, criteria=tuple(_criterion(one, values, images=images) for one in QUESTIONS))


def _criterion(question: AnonymityQuestion, values: dict[str, str], *, images: bool) -> Criterion:
    speaks_for = question.speaks_for if images else question.without_images or question.speaks_for
    return Criterion(
        name=question.name,
        question=question.question,
        speaks_for=speaks_for.format(**values),
        speaks_against=question.speaks_against.format(**values),
    )
