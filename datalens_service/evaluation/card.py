"""The card: what every downloaded file says about its own making. Small, public, JSON."""

from __future__ import annotations

from typing import Any, Final

from datalens_service.evaluation.report import Report
from datalens_service.evaluation.statement import Release
from datalens_service.privacy.accounting import NeighboringRelation

FORMAT: Final = "datalens-card/1"


def card(report: Report) -> dict[str, Any]:
    """The public essence of a report.

    Returns:
        JSON-compatible values; measures among them only if anybody may see them.
    """
    schema, privacy = report.dataset.public_schema, report.privacy
    return {
        "format": FORMAT,
        "synthetic": True,
        "product": report.product.model_dump(mode="json"),
        "date": report.date.isoformat(),
        "method": report.method.name,
        "images": schema.model_dump(mode="json", include={"channels", "height", "width", "class_names"}),
        "privacy": {
            "unit": privacy.unit,
            "num_units": privacy.num_units,
            "neighboring_relation": privacy.headline.relation.value,
            "epsilon": privacy.headline.epsilon,
            "delta": privacy.delta,
            "mu": privacy.headline.mu,
            "units": privacy.headline.units,
            "epsilon_replace_one": privacy.replace_one.epsilon,
            "tier": privacy.tier,
            "mechanisms": [_brief(release) for release in privacy.releases],
            "not_covered": list(privacy.scope.not_covered),
        },
        "measures": [measure.model_dump(mode="json") for measure in report.measures if measure.releasable],
    }


def _brief(release: Release) -> dict[str, Any]:
    return {
        "label": release.mechanism.label(),
        "count": release.count,
        "noise_stddev": release.mechanism.noise_stddev,
        "units": release.units(NeighboringRelation.ZERO_OUT),
    }
