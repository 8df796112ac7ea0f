"""The meaning of a report, and of a release, in sentences for somebody who has never heard of ε.

Those of a release are made of the report for others alone, which holds no private value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from datalens_service.data.export.pages import tell_accuracy
from datalens_service.evaluation.measures import Measure
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.guarantee import PrivacyUnit, right_guesses, tell_risk
from datalens_service.report.privacy_statement import PrivacyStatement
from datalens_service.report.result_wording import PUBLIC_IMAGES, choose_wording
from datalens_service.report.verdict import Figures, judge


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


class ReleaseSummary(NamedTuple):
    """Sentences about a release; public.

    Attributes:
        made: Description of it: method, private images, public inputs, looks.
        usefulness: The verdict, as far as figures are public or covered by the guarantee.
        promise: The guarantee in words, without ε.
    """

    made: str = ""
    usefulness: str = ""
    promise: str = ""


def summarize_release(report: Mapping[str, Any]) -> ReleaseSummary:
    """Summarize a release by its report for others, given as JSON.

    Raises:
        ValueError: It is the owner's report.
    """
    if report["view"] != "releasable":
        raise ValueError("a release is described by the report for others")
    return ReleaseSummary(_tell_made(report), _tell_usefulness(report), _tell_promise(report))


def _tell_made(report: Mapping[str, Any]) -> str:
    privacy, public = report["privacy"], report["privacy"]["public_data"]
    made = tell_made(report["method"]["name"], privacy["num_units"], _read_unit(privacy), _kind(report))
    used = public["public_images_used"] or public["pre_trained_weights_used"]
    inputs = [public["provenance"]] if used else []
    return " ".join([made, *inputs, *find_about_method(report["summary"])])


def _kind(report: Mapping[str, Any]) -> str:
    if report.get("public_images"):
        return PUBLIC_IMAGES
    return "generator" if report["synthetic"] else "classifier"


def _tell_usefulness(report: Mapping[str, Any]) -> str:
    figures = Figures.from_report(report)
    return " ".join(report["usefulness"]) if figures.accuracy is None else judge(figures).sentence


def _tell_promise(report: Mapping[str, Any]) -> str:
    privacy, headline = report["privacy"], report["privacy"]["headline"]
    return tell_risk(_read_unit(privacy).word, Charge(headline["units"], headline.get("slack", 0)))


def _read_unit(privacy: Mapping[str, Any]) -> PrivacyUnit:
    return PrivacyUnit(privacy["unit"], privacy["records_per_unit"])
