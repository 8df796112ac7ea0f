"""The report of one job, and the two forms in which it may be read.

`owner_view` holds every figure. `releasable_view` holds those that anybody may see; it is built from the allowed
measures only, sentences included, so that a private figure has no way into it.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.dataset import Schema
from datalens_service.evaluation import wording
from datalens_service.evaluation.measures import METRICS, STATUS_LABELS, Measure
from datalens_service.evaluation.statement import PrivacyStatement, Release
from datalens_service.evaluation.summary import summary, usefulness
from datalens_service.privacy.accounting import NeighboringRelation

FORMAT: Final = "datalens-report/1"


def _version() -> str:
    return version("datalens-service")


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Product(_Frozen):
    """What made the images."""

    name: str = "DataLens Service"
    version: str = Field(default_factory=_version)
    commit: str | None = Field(default=None, description="Of the source, if the build knows it.")


class DatasetFacts(_Frozen):
    """The public side of the private data set."""

    id: str | None = Field(description="Random; None for a run without a service behind it.")
    public_schema: Schema


class MethodFacts(_Frozen):
    """What was asked for, with every default filled in, and what was planned before a record was read."""

    name: str
    spec: dict[str, Any]
    plan: tuple[Release, ...]


class Report(_Frozen):
    """Everything that is known about one finished job, private measures included: for the owner."""

    product: Product = Field(default_factory=Product)
    date: datetime.date = Field(default_factory=_today)
    contact: str | None = Field(default=None, description="Whom to ask.")
    dataset: DatasetFacts
    method: MethodFacts
    privacy: PrivacyStatement
    measures: tuple[Measure, ...] = ()


def owner_view(report: Report) -> dict[str, Any]:
    """The whole report as JSON, for the owner of the private images."""
    return _view("owner", report, report.measures)


def releasable_view(report: Report) -> dict[str, Any]:
    """The report as JSON without any figure that is private or for the owner.

    The account of several uploads is for the owner: that they share records depends on the records.
    """
    lifetime = report.privacy.lifetime
    if lifetime is not None and lifetime.linked:
        report = report.model_copy(update={"privacy": report.privacy.model_copy(update={"lifetime": None})})
    return _view("releasable", report, [measure for measure in report.measures if measure.releasable])


def _view(view: Literal["owner", "releasable"], report: Report, measures: Sequence[Measure]) -> dict[str, Any]:
    facts = report.model_dump(mode="json", exclude={"measures", "method", "privacy"})
    method, privacy = report.method, report.privacy
    return {
        "format": FORMAT,
        "view": view,
        "synthetic": True,
        **facts,
        "summary": summary(method.name, privacy),
        "usefulness": usefulness(measures),
        "measures_notice": wording.OWNER_NOTICE if view == "owner" else wording.WITHHELD,
        "measures": [_explained(measure) for measure in measures],
        "privacy": {
            **privacy.model_dump(mode="json", exclude={"releases"}),
            "mechanisms": [described(release) for release in privacy.releases],
        },
        "method": {"name": method.name, "spec": method.spec, "plan": [described(release) for release in method.plan]},
    }


def described(release: Release) -> dict[str, Any]:
    """Mechanism, count, every parameter, sensitivity and price of a release; public."""
    return {
        **release.mechanism.describe(),
        "count": release.count,
        "units_zero_out_total": release.units(NeighboringRelation.ZERO_OUT),
        "units_replace_one_total": release.units(NeighboringRelation.REPLACE_ONE),
    }


def _explained(measure: Measure) -> dict[str, Any]:
    metric = METRICS[measure.name]
    return {
        **measure.model_dump(mode="json"),
        "title": metric.title,
        "meaning": metric.meaning,
        "status_label": STATUS_LABELS[measure.status],
    }
