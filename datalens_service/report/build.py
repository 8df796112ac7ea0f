"""The report of one job, and the two forms in which it may be read.

`owner_view` holds every figure. `releasable_view` is built, sentences included, from the fields that are public where
they are defined, so that a private figure has no way into it. Both have the shape of `document.py`. What they must
state, `REQUIRED_FIELDS`, is the union of what NIST SP 800-226, "How to DP-fy ML" and the OpenDP registry of deployments
ask for.
"""

import datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, field_validator

from datalens_service.base.audience import AllPublic, Private, Public, public_part
from datalens_service.base.fields import Frozen
from datalens_service.base.plugins import PluginOrigin
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.measures import Measure, Measurements
from datalens_service.mechanisms import PlannedRelease
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.models.public_source import NO_PUBLIC_INPUTS, PublicInputs
from datalens_service.report import attacks, disclosures, phrases
from datalens_service.report.anonymity import assess_anonymity
from datalens_service.report.attacks import AttackFinding, AttacksSection
from datalens_service.report.disclosures import Recomputation
from datalens_service.report.document import (
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
from datalens_service.report.privacy_statement import (
    PrivacyFigures,
    PrivacyStatement,
    describe_public_inputs,
    has_directions,
    has_sampling,
)
from datalens_service.report.result_wording import PUBLIC_IMAGES, choose_wording
from datalens_service.report.summary import summary, usefulness
from datalens_service.report.verdict import Figures, judge


class Required(NamedTuple):
    """A required field: its name for people and the paths below the root that carry it."""

    title: str
    paths: tuple[str, ...]


REQUIRED_FIELDS: Final[dict[str, Required]] = {
    "F1": Required(
        "Product, version, commit, data set", ("product.name", "product.version", "product.commit", "dataset.id",
                                              "dataset.fingerprint"),
    ),
    "F2": Required("Flavour of privacy and who is trusted", ("privacy.setting", "privacy.trust")),
    "F3": Required(
        "Unit of protection and how it was declared",
        ("privacy.unit", "privacy.unit_declared_by", "privacy.records_per_unit"),
    ),
    "F4": Required(
        "Neighbouring relations",
        ("privacy.headline.relation", "privacy.headline.meaning", "privacy.replace_one.relation",
         "privacy.replace_one.meaning"),
    ),
    "F5": Required(
        "Public quantities", ("privacy.scope.public", "privacy.num_units", "dataset.public_schema", "method.plan")
    ),
    "F6": Required("μ, exact", ("privacy.headline.mu", "privacy.headline.units", "privacy.replace_one.mu")),
    "F7": Required(
        "ε at several δ, rounded up",
        ("privacy.delta", "privacy.headline.points", "privacy.headline.curve", "privacy.replace_one.points",
         "privacy.replace_one.curve"),
    ),
    "F8": Required("n·δ and the tier of ε", ("privacy.delta_times_units", "privacy.tier", "privacy.tier_meaning")),
    "F9": Required(
        "Largest success of any attack",
        ("privacy.headline.membership_advantage", "privacy.headline.true_positive_rate_at_0_1_percent",
         "privacy.headline.true_positive_rate_at_1_percent"),
    ),
    "F10": Required("Mechanisms with all parameters", ("privacy.mechanisms", "method.spec", "privacy.spend")),
    "F11": Required("Noise: distribution, sampler, source", ("privacy.noise",)),
    "F12": Required("Accountant and second opinion", ("privacy.accountant", "privacy.recomputation")),
    "F13": Required("Assumptions and whether they hold", ("privacy.assumptions",)),
    "F14": Required(
        "Accesses to private data, covered or not",
        ("privacy.data_accesses", "privacy.scope.covered", "privacy.scope.not_covered"),
    ),
    "F15": Required("What is released and what never is", ("privacy.scope.released", "privacy.scope.never_released")),
    "F16": Required("Spend over the lifetime of the data set", ("privacy.lifetime", "privacy.lifetime_note")),
    "F17": Required("Linked data sets", ("privacy.linked_datasets", "privacy.linked_note")),
    "F18": Required("Policy of the budget", ("privacy.policy", "privacy.epsilon_limit", "privacy.limit_units")),
    "F19": Required("Public data and pre-training", ("privacy.public_data",)),
    "F20": Required("Origin of the parameters", ("privacy.hyperparameters",)),
    "F21": Required("Figures, each with its status", ("measures", "measures_notice", "unavailable")),
    "F22": Required("Classes and groups", ("privacy.caveats", "per_class")),
    "F23": Required("Empirical audit", ("privacy.audit", "privacy.evidence")),
    "F24": Required("Known limits", ("privacy.limits",)),
    "F25": Required("Retention and deletion", ("privacy.retention",)),
    "F26": Required("Contact, date, seal, signature", ("contact", "date", "seal", "signature")),
}  # fmt: skip


View = Literal["owner", "releasable"]


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()  # noqa: TID251 (for readers)


class MethodFacts(Frozen):
    """The request with every default filled in, and the plan that was made before a record was read."""

    name: Public[str]
    spec: AllPublic[dict[str, Any]]
    plan: AllPublic[tuple[PlannedRelease, ...]]
    rationale: Public[str] = Field(default="", description="What its images look like.")
    plugin: AllPublic[PluginOrigin | None] = Field(default=None, description="Package of a plug-in.")
    working_size: Public[str] = Field(default="", description="How much of large images it sees, if not all.")


class JournalFacts(Frozen):
    """The journal of the account that paid, as it stood when the report was written."""

    opened_on: datetime.date
    opening_entry: str = Field(description="Hash of its first entry, which is random and no function of the records.")
    entries: int
    head: str = Field(description="Hash of its last entry.")
    linked_datasets: tuple[str, ...] = Field(description="Other uploads that share records with this one.")


class Report(Frozen):
    """Everything that is known about one finished job, private measures included: for the owner."""

    product: Public[Product]
    date: Public[datetime.date] = Field(default_factory=_today)
    contact: Public[str | None] = Field(default=None, description="Whom to ask.")
    dataset_id: Public[str | None] = Field(description="Random; None for a run without a service behind it.")
    public_schema: AllPublic[Schema]
    method: Public[MethodFacts]
    privacy: Public[PrivacyStatement]
    journal: JournalFacts | None = Field(default=None, description="None for a run without a service behind it.")
    recomputation: Public[Recomputation | None] = Field(default=None, description="ε by a second program.")
    measures: Public[tuple[Measure, ...]] = Field(default=(), description="Measures that anybody may see.")
    measured: Private[Measurements] = Field(default_factory=lambda: Private(Measurements()))
    attacked: Public[bool] = Field(default=False, description="Whether the owner had asked for attacks by then.")
    attacks: tuple[AttackFinding, ...] = ()
    result: Public[str] = Field(default="generator", description="Kind of the released model.")
    individual: AllPublic[IndividualFigures | None] = Field(default=None, description="Released statistics.")
    public_inputs: AllPublic[PublicInputs] = Field(
        default=NO_PUBLIC_INPUTS, description="Inputs of the result beside private records."
    )
    served: Public[bool] = Field(default=True, description="Whether a service has the images.")

    @field_validator("measures")
    @classmethod
    def _for_anybody(cls, measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
        if not all(measure.releasable for measure in measures):
            raise ValueError("a measure for the owner is among those that anybody may see")
        return measures


def owner_view(report: Report) -> dict[str, Any]:
    """Return the whole report as JSON, for the owner of the private images; valid by `document.check`."""
    return _document("owner", report, report.measured.for_owner()).sealed()


def releasable_view(report: Report) -> dict[str, Any]:
    """Return the report as JSON of public fields alone, and of what is made of them; valid by `document.check`.

    Nothing of the account is in it, shared with another upload or not: its presence or absence would otherwise reveal
    the spending of other jobs, and whether two uploads share a record.
    """
    shown = public_part(report)
    return public_part(_document("releasable", shown, Measurements(measures=shown.measures))).sealed()


def _document(view: View, report: Report, measured: Measurements) -> ReportDocument:
    """Build one of the two views, not yet sealed."""
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
        usefulness=tuple(_usefulness(view, report, measured, images)),
        anonymity=assess_anonymity(report.privacy, report.result),
        measures_notice=phrases.OWNER_NOTICE if view == "owner" else phrases.WITHHELD,
        measures=tuple(MeasureSection.from_measure(one, images) for one in measured.measures),
        per_class=measured.per_class,
        unavailable=measured.unavailable,
        person_caveats=measured.person_caveats or None,
        confusion=measured.confusion,
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


def _usefulness(view: View, report: Report, measured: Measurements, images: str) -> list[str]:
    if view == "releasable":
        return usefulness(measured.measures, images)
    known = measured.model_dump()
    schema = report.public_schema.model_dump(include={"class_names"})
    return [judge(Figures.from_report({**known, "dataset": {"public_schema": schema}})).sentence]


def _about_method(report: Report) -> tuple[str, ...]:
    prepared = report.public_schema.preparation
    return (report.method.rationale, prepared.sentence() if prepared else "", report.method.working_size)


def _attacks(view: View, report: Report) -> AttacksSection:
    notice = attacks.OWNER_NOTICE if view == "owner" else attacks.RELEASABLE_NOTICE
    return AttacksSection(notice=notice, findings=report.attacks)


def _privacy(view: View, report: Report) -> PrivacySection:
    privacy, journal = report.privacy, report.journal
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
        public_data=disclosures.public_data(report.public_inputs, describe_public_inputs(report.public_inputs)),
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
