"""A release in sentences for somebody who is offered it: what it is, what it is good for, and what is promised.

They are made of the report for others alone, which holds no private value.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.guarantee import PrivacyUnit, tell_risk
from datalens_service.report.result_wording import PUBLIC_IMAGES
from datalens_service.report.summary import find_about_method, tell_made
from datalens_service.report.verdict import Figures, judge


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
