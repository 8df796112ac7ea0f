"""The report of one job, and the two forms in which it may be read.

`owner_view` holds every figure. `releasable_view` holds those that anybody may see; it is built from the allowed
measures only, sentences included, so that a private figure has no way into it. Both have the shape of `document.py`.
"""

from __future__ import annotations

import datetime
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.dataset import Schema
from datalens_service.evaluation.measures import STATUS_LABELS, ClassFigure, ConfusionTable, Measure, Unavailable
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.report import attacks, disclosures, phrases
from datalens_service.evaluation.report.anonymity import anonymity_of
from datalens_service.evaluation.report.attacks import AttackFinding, AttacksSection
from datalens_service.evaluation.report.disclosures import Recomputation
from datalens_service.evaluation.report.document import FORMAT, SEALED_BY, compute_seal
from datalens_service.evaluation.report.privacy_statement import (
    PrivacyStatement,
    Release,
    has_directions,
    has_sampling,
    started_from,
)
from datalens_service.evaluation.report.required_fields import REQUIRED_FIELDS
from datalens_service.evaluation.report.result_wording import wording_of
from datalens_service.evaluation.report.summary import summary, usefulness
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.models.public_source import PublicSource
from datalens_service.plugins import PluginOrigin
from datalens_service.privacy.accounting import NeighboringRelation

View = Literal["owner", "releasable"]


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
    commit: str | None = Field(
        default=None, description="Of the source, or SHA-256 of its files where it is not known."
    )


class DatasetFacts(_Frozen):
    """The public side of the private data set."""

    id: str | None = Field(description="Random; None for a run without a service behind it.")
    public_schema: Schema


class MethodFacts(_Frozen):
    """What was asked for, with every default filled in, and what was planned before a record was read."""

    name: str
    spec: dict[str, Any]
    plan: tuple[Release, ...]
    rationale: str = Field(default="", description="What its images are made for, and why so.")
    plugin: PluginOrigin | None = Field(default=None, description="The package that brought it, if it is a plug-in.")
    working_size: str = Field(default="", description="How much of large images it sees; empty for whole images.")


class AccountFacts(_Frozen):
    """The account that paid, as it stood when the report was written."""

    opened_on: datetime.date
    opening_entry: str = Field(description="Hash of its first entry: random, no function of the records.")
    entries: int
    head: str = Field(description="Hash of its last entry.")
    linked_datasets: tuple[str, ...] = Field(description="Other uploads that share records with this one.")


class Report(_Frozen):
    """Everything that is known about one finished job, private measures included: for the owner."""

    product: Product = Field(default_factory=Product)
    date: datetime.date = Field(default_factory=_today)
    contact: str | None = Field(default=None, description="Whom to ask.")
    dataset: DatasetFacts
    method: MethodFacts
    privacy: PrivacyStatement
    account: AccountFacts | None = Field(default=None, description="None for a run without a service behind it.")
    recomputation: Recomputation | None = Field(default=None, description="ε by a second program, if it was run.")
    measures: tuple[Measure, ...] = ()
    per_class: tuple[ClassFigure, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    confusion: ConfusionTable | None = None
    attacked: bool = Field(default=False, description="Whether the owner had asked for attacks by then.")
    attacks: tuple[AttackFinding, ...] = ()
    result: str = Field(default="generator", description="Kind of the released model.")
    individual: IndividualFigures | None = Field(default=None, description="Released statistics of individual epsilon.")
    public_source: PublicSource | None = Field(default=None, description="Public images that training started from.")
    served: bool = Field(default=True, description="Whether a service has the images; False for a run without one.")


def owner_view(report: Report) -> dict[str, Any]:
    """The whole report as JSON, for the owner of the private images; valid by `document.check`."""
    return _view("owner", report)


def releasable_view(report: Report) -> dict[str, Any]:
    """The report as JSON without any figure that is private or for the owner; valid by `document.check`.

    Nothing of the account is in it, shared with another upload or not: what other jobs spent and that two uploads
    share a record would otherwise show by what is there and what is not.
    """
    shown = tuple(measure for measure in report.measures if measure.releasable)
    privacy = report.privacy.model_copy(update={"lifetime": None})
    withheld = {"account": None, "per_class": (), "unavailable": (), "confusion": None, "attacks": ()}
    without = {**withheld, "privacy": privacy, "measures": shown}
    return _view("releasable", report.model_copy(update=without))


def _view(view: View, report: Report) -> dict[str, Any]:
    method, account = report.method, report.account
    content: dict[str, Any] = {
        "format": FORMAT,
        "view": view,
        "synthetic": wording_of(report.result).synthetic,
        "product": report.product.model_dump(mode="json"),
        "date": report.date.isoformat(),
        "contact": report.contact or disclosures.UNKNOWN_CONTACT,
        "dataset": _dataset(report.dataset, account),
        "index": [
            {"field": name, "title": one.title, "paths": list(one.paths)} for name, one in REQUIRED_FIELDS.items()
        ],
        "summary": summary(method.name, report.privacy, report.result, _about_method(report)),
        "usefulness": usefulness(report.measures),
        "anonymity": anonymity_of(report.privacy, report.result).model_dump(mode="json"),
        "measures_notice": phrases.OWNER_NOTICE if view == "owner" else phrases.WITHHELD,
        "measures": [_explained(measure) for measure in report.measures],
        "per_class": [figure.model_dump(mode="json") for figure in report.per_class],
        "unavailable": [figure.model_dump(mode="json") for figure in report.unavailable],
        "privacy": _privacy(view, report),
        "method": {"name": method.name, "spec": method.spec, "plan": [described(release) for release in method.plan]},
    }
    if method.plugin is not None:
        content["method"]["plugin"] = {"notice": phrases.PLUGIN, **method.plugin.model_dump(mode="json")}
    if report.confusion is not None:
        content["confusion"] = report.confusion.model_dump(mode="json")
    if report.attacked:
        notice = attacks.OWNER_NOTICE if view == "owner" else attacks.RELEASABLE_NOTICE
        content["attacks"] = AttacksSection(notice=notice, findings=report.attacks).model_dump(mode="json")
    if report.individual is not None:
        content["individual_epsilon"] = {"meaning": phrases.INDIVIDUAL, **report.individual.model_dump(mode="json")}
    return {**content, "seal": _seal(content, account), "signature": None}


def _about_method(report: Report) -> tuple[str, ...]:
    prepared = report.dataset.public_schema.preparation
    return (report.method.rationale, prepared.sentence() if prepared else "", report.method.working_size)


def _public_data(report: Report) -> disclosures.PublicData:
    source = report.public_source
    return disclosures.public_data(None if source is None else started_from(source))


def _assumptions(privacy: PrivacyStatement) -> tuple[disclosures.Assumption, ...]:
    return disclosures.assumptions(sampled=has_sampling(privacy.releases), directions=has_directions(privacy.releases))


def _dataset(facts: DatasetFacts, account: AccountFacts | None) -> dict[str, Any]:
    fingerprint = {
        "scheme": "hash of the first entry of the account that these records opened; records have one account for "
        "ever, and a hash of their content is not released",
        "value": account and account.opening_entry,
    }
    return {**facts.model_dump(mode="json"), "fingerprint": fingerprint}


def _privacy(view: View, report: Report) -> dict[str, Any]:
    privacy, method, account = report.privacy, report.method, report.account
    linked = None if account is None else list(account.linked_datasets)
    sections: dict[str, Any] = {
        "trust": list(disclosures.TRUST),
        "mechanisms": [described(release) for release in privacy.releases],
        "recomputation": _dumped(report.recomputation or _not_recomputed(privacy)),
        "assumptions": [_dumped(one) for one in _assumptions(privacy)],
        "data_accesses": [_dumped(one) for one in _accesses(report)],
        "lifetime_note": _lifetime_note(view, privacy),
        "linked_datasets": linked,
        "linked_note": phrases.LINKED if view == "owner" else disclosures.NOT_STATED,
        "policy": _dumped(_policy(account)),
        "public_data": _dumped(_public_data(report)),
        "hyperparameters": _dumped(disclosures.hyperparameters(method.name)),
        "caveats": list(disclosures.CAVEATS),
        "audit": _dumped(disclosures.ASKED_AUDIT if report.attacked else disclosures.AUDIT),
        "evidence": phrases.ATTACKED if report.attacked else privacy.evidence,
        "limits": list(disclosures.LIMITS),
    }
    return {**privacy.model_dump(mode="json", exclude={"releases"}), **sections}


def _accesses(report: Report) -> tuple[disclosures.DataAccess, ...]:
    return disclosures.data_accesses(report.method.spec, served=report.served, result=report.result)


def _lifetime_note(view: View, privacy: PrivacyStatement) -> str:
    if view == "releasable":
        return phrases.LIFETIME_WITHHELD
    return phrases.LIFETIME if privacy.lifetime else phrases.NO_ACCOUNT


def _policy(account: AccountFacts | None) -> disclosures.Policy:
    return disclosures.Policy(
        refresh="never",
        set_by="the owner, when the records were uploaded for the first time",
        set_on=account.opened_on.isoformat() if account is not None else disclosures.NOT_STATED,
        rule=disclosures.POLICY_RULE,
    )


def _not_recomputed(privacy: PrivacyStatement) -> Recomputation:
    note = "Not run for this report. `datalens verify` does it from the job's privacy.json."
    return Recomputation(by="nobody", epsilon=None, delta=privacy.delta, agrees=None, note=note)


def _seal(content: dict[str, Any], account: AccountFacts | None) -> dict[str, Any]:
    return {
        "scheme": SEALED_BY,
        "sha256": compute_seal(content),
        "account_entries": account and account.entries,
        "account_head": account and account.head,
    }


def _dumped(section: BaseModel) -> dict[str, Any]:
    return section.model_dump(mode="json")


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
