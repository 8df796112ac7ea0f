"""The report of one job, and the two forms in which it may be read.

`owner_view` holds every figure. `releasable_view` holds those that anybody may see; it is built from the allowed
measures only, sentences included, so that a private figure has no way into it. Both have the shape of `document.py`.
"""

import datetime
from typing import Any, Literal

from pydantic import Field

from datalens_service.data.dataset import Schema
from datalens_service.evaluation.measures import ClassFigure, ConfusionTable, Measure, Unavailable
from datalens_service.evaluation.report import attacks, disclosures, phrases
from datalens_service.evaluation.report.anonymity import assess_anonymity
from datalens_service.evaluation.report.attacks import AttackFinding, AttacksSection
from datalens_service.evaluation.report.disclosures import Recomputation
from datalens_service.evaluation.report.document import (
    FORMAT,
    SEALED_BY,
    UNSEALED,
    DatasetSection,
    Fingerprint,
    IndexEntry,
    IndividualSection,
    MeasureSection,
    MechanismSection,
    MethodSection,
    PluginSection,
    PrivacySection,
    Product,
    ReportDocument,
    Seal,
)
from datalens_service.evaluation.report.privacy_statement import (
    PrivacyFigures,
    PrivacyStatement,
    describe_public_inputs,
    has_directions,
    has_sampling,
)
from datalens_service.evaluation.report.required_fields import REQUIRED_FIELDS
from datalens_service.evaluation.report.result_wording import PUBLIC_IMAGES, choose_wording
from datalens_service.evaluation.report.summary import summary, usefulness
from datalens_service.evaluation.report.verdict import Figures, judge
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.models.public_source import PublicEncoder, PublicSource
from datalens_service.plugins import PluginOrigin
from datalens_service.strict import Frozen

View = Literal["owner", "releasable"]


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


class MethodFacts(Frozen):
    """What was asked for, with every default filled in, and what was planned before a record was read."""

    name: str
    spec: dict[str, Any]
    plan: tuple[PlannedRelease, ...]
    rationale: str = Field(default="", description="What its images look like.")
    plugin: PluginOrigin | None = Field(default=None, description="The package that brought it, if it is a plug-in.")
    working_size: str = Field(default="", description="How much of large images it sees; empty for whole images.")
    encoder: PublicEncoder | None = Field(default=None, description="Public encoder through which it sees images.")


class JournalFacts(Frozen):
    """The journal of the account that paid, as it stood when the report was written."""

    opened_on: datetime.date
    opening_entry: str = Field(description="Hash of its first entry: random, no function of the records.")
    entries: int
    head: str = Field(description="Hash of its last entry.")
    linked_datasets: tuple[str, ...] = Field(description="Other uploads that share records with this one.")


class Report(Frozen):
    """Everything that is known about one finished job, private measures included: for the owner."""

    product: Product
    date: datetime.date = Field(default_factory=_today)
    contact: str | None = Field(default=None, description="Whom to ask.")
    dataset_id: str | None = Field(description="Random; None for a run without a service behind it.")
    public_schema: Schema
    method: MethodFacts
    privacy: PrivacyStatement
    journal: JournalFacts | None = Field(default=None, description="None for a run without a service behind it.")
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
    return _document("owner", report).sealed()


def releasable_view(report: Report) -> dict[str, Any]:
    """The report as JSON without any figure that is private or for the owner; valid by `document.check`.

    Nothing of the account is in it, shared with another upload or not: what other jobs spent and that two uploads
    share a record would otherwise show by what is there and what is not.
    """
    shown = tuple(measure for measure in report.measures if measure.releasable)
    privacy = report.privacy.model_copy(update={"lifetime": None})
    withheld = {"journal": None, "per_class": (), "unavailable": (), "confusion": None, "attacks": ()}
    without = {**withheld, "privacy": privacy, "measures": shown}
    return _document("releasable", report.model_copy(update=without)).sealed()


def _document(view: View, report: Report) -> ReportDocument:
    """One of the two, not yet sealed."""
    method, journal, individual = report.method, report.journal, report.individual
    public = report.result == PUBLIC_IMAGES
    images = "released" if public else "synthetic"
    return ReportDocument(
        format=FORMAT,
        view=view,
        synthetic=choose_wording(report.result).synthetic,
        public_images=True if public else None,
        product=report.product,
        date=report.date,
        contact=report.contact or disclosures.UNKNOWN_CONTACT,
        dataset=DatasetSection(
            id=report.dataset_id,
            fingerprint=Fingerprint(scheme=phrases.FINGERPRINT, value=journal and journal.opening_entry),
            public_schema=report.public_schema,
        ),
        index=tuple(IndexEntry(field=name, title=one.title, paths=one.paths) for name, one in REQUIRED_FIELDS.items()),
        summary=tuple(summary(method.name, report.privacy, report.result, _about_method(report))),
        usefulness=tuple(_usefulness(view, report, images)),
        anonymity=assess_anonymity(report.privacy, report.result),
        measures_notice=phrases.OWNER_NOTICE if view == "owner" else phrases.WITHHELD,
        measures=tuple(MeasureSection.from_measure(one, images) for one in report.measures),
        per_class=report.per_class,
        unavailable=report.unavailable,
        confusion=report.confusion,
        attacks=_attacks(view, report) if report.attacked else None,
        individual_epsilon=individual and IndividualSection(meaning=phrases.INDIVIDUAL, **individual.model_dump()),
        privacy=_privacy(view, report),
        method=MethodSection(
            name=method.name,
            spec=method.spec,
            plan=tuple(map(MechanismSection.from_release, method.plan)),
            plugin=method.plugin and PluginSection(notice=phrases.PLUGIN, **method.plugin.model_dump()),
        ),
        seal=Seal(
            scheme=SEALED_BY,
            sha256=UNSEALED,
            account_entries=journal and journal.entries,
            account_head=journal and journal.head,
        ),
        signature=None,
    )


def _usefulness(view: View, report: Report, images: str) -> list[str]:
    if view == "releasable":
        return usefulness(report.measures, images)
    known = report.model_dump(include={"measures", "per_class", "confusion"})
    schema = report.public_schema.model_dump(include={"class_names"})
    return [judge(Figures.from_report({**known, "dataset": {"public_schema": schema}})).sentence]


def _about_method(report: Report) -> tuple[str, ...]:
    prepared = report.public_schema.preparation
    return (report.method.rationale, prepared.sentence() if prepared else "", report.method.working_size)


def _attacks(view: View, report: Report) -> AttacksSection:
    notice = attacks.OWNER_NOTICE if view == "owner" else attacks.RELEASABLE_NOTICE
    return AttacksSection(notice=notice, findings=report.attacks)


def _privacy(view: View, report: Report) -> PrivacySection:
    privacy, journal, source, encoder = report.privacy, report.journal, report.public_source, report.method.encoder
    return PrivacySection(
        **{name: getattr(privacy, name) for name in PrivacyFigures.model_fields},
        trust=disclosures.TRUST,
        mechanisms=tuple(map(MechanismSection.from_release, privacy.releases)),
        recomputation=report.recomputation or _not_recomputed(privacy),
        assumptions=disclosures.assumptions(
            sampled=has_sampling(privacy.releases), directions=has_directions(privacy.releases)
        ),
        data_accesses=disclosures.data_accesses(report.method.spec, served=report.served, result=report.result),
        lifetime_note=_lifetime_note(view, privacy),
        linked_datasets=journal and journal.linked_datasets,
        linked_note=phrases.LINKED if view == "owner" else disclosures.NOT_STATED,
        policy=_policy(journal),
        public_data=disclosures.public_data(
            describe_public_inputs(source, encoder), images=source is not None, weights=encoder is not None
        ),
        hyperparameters=disclosures.hyperparameters(report.method.name),
        caveats=disclosures.CAVEATS,
        audit=disclosures.ASKED_AUDIT if report.attacked else disclosures.AUDIT,
        evidence=phrases.ATTACKED if report.attacked else phrases.EVIDENCE,
        limits=disclosures.LIMITS,
    )


def _lifetime_note(view: View, privacy: PrivacyStatement) -> str:
    if view == "releasable":
        return phrases.LIFETIME_WITHHELD
    return phrases.LIFETIME if privacy.lifetime else phrases.NO_ACCOUNT


def _policy(journal: JournalFacts | None) -> disclosures.Policy:
    return disclosures.Policy(
        refresh="never",
        set_by="the owner, when the records were uploaded for the first time",
        set_on=journal.opened_on.isoformat() if journal is not None else disclosures.NOT_STATED,
        rule=disclosures.POLICY_RULE,
    )


def _not_recomputed(privacy: PrivacyStatement) -> Recomputation:
    note = "Not run for this report. `datalens verify` does it from the job's privacy.json."
    return Recomputation(by="nobody", epsilon=None, delta=privacy.delta, agrees=None, note=note)
