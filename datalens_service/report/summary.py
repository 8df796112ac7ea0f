"""The meaning of a report, in sentences for somebody who has never heard of ε."""

from collections.abc import Sequence

from datalens_service.data.export.pages import tell_accuracy
from datalens_service.evaluation.measures import Measure
from datalens_service.privacy.guarantee import PrivacyUnit, right_guesses
from datalens_service.report.privacy_statement import PrivacyStatement
from datalens_service.report.result_wording import choose_wording


def summary(
    method: str, privacy: PrivacyStatement, result: str = "generator", about_method: Sequence[str] = ()
) -> list[str]:
    """Summarize what was made and why, and what is promised; public.

    Args:
        about_method: Sentences on the looks of images, and on how much of each is learned.
    """
    wording = choose_wording(result)
    headline, unit = privacy.headline, privacy.privacy_unit
    return [
        tell_made(method, privacy.num_units, unit, result),
        *filter(None, about_method),
        f"In other words: somebody studies {wording.studied} and has to tell whether one given {unit.word} took "
        f"part, both being equally likely before. Whatever else they know, they are right in at most "
        f"{right_guesses(headline.membership_advantage)} of 100 cases. A coin is right in 50.",
        f"{privacy.guarantee()} {privacy.tier_meaning}",
    ]


def tell_made(method: str, num_units: int, unit: PrivacyUnit, result: str) -> str:
    """Say what was made of whose images, and how; public."""
    images = (
        f"{num_units:,} private images" if unit.is_image else f"the private images of {unit.write_count(num_units)}"
    )
    made = choose_wording(result).made
    return f"{made} from {images} by the method “{method.replace('_', ' ')}” and under differential privacy."


def find_about_method(sentences: Sequence[str]) -> Sequence[str]:
    """Return the sentences on the method among those of `summary`."""
    return sentences[1:-2]


def usefulness(measures: Sequence[Measure], images: str = "synthetic") -> list[str]:
    """Summarize the figures that anybody may see; the verdict explains to the owner what they mean."""
    return [tell_accuracy({measure.name: measure.value for measure in measures}, images)]
