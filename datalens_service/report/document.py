"""The report as a published document: its exact shape, and the check that every report passes before it is handed out.

`docs/privacy-report.schema.json` is made from these models. Every field is required, also where a model would know
a default: a report that lacks one is not a report.
"""

import datetime
import hashlib
import json
import operator
import re
from importlib.metadata import version
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from datalens_service.base.audience import AllPublic, Public
from datalens_service.base.errors import ReportIncomplete
from datalens_service.base.fields import Finite
from datalens_service.base.plugins import PluginOrigin
from datalens_service.base.signatures import MEMBER, Signature, SignatureInvalid, parse_document, signer
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.measures import STATUS_LABELS, ClassFigure, ConfusionTable, Measure, Unavailable
from datalens_service.evaluation.metrics import METRICS
from datalens_service.mechanisms import PlannedRelease
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.report.anonymity import Anonymity
from datalens_service.report.attacks import AttacksSection
from datalens_service.report.disclosures import (
    Assumption,
    Audit,
    DataAccess,
    Hyperparameters,
    Policy,
    PublicData,
    Recomputation,
)
from datalens_service.report.privacy_statement import PrivacyFigures

FORMAT: Final = "datalens-report/3"
SCHEMA_FILE: Final = "docs/privacy-report.schema.json"
UNSEALED: Final = "0" * 64
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_OPTIONAL: Final = frozenset(
    {"anonymity", "attacks", "confusion", "individual_epsilon", "person_caveats", "public_images"}
)
_OPTIONAL_WITHIN: Final = frozenset({
    "plugin", "slack", "records_are_public", "public_license", "preparation", "groups_ignored", "confidence_interval",
    "balanced", "balanced_spread",
})  # fmt: skip
"""Members of parts that only some reports have; the parts leave them out by themselves."""
SEALED_BY: Final = "SHA-256 of the JSON without its members seal and signature: keys sorted, no spaces, UTF-8"


class Product(Finite):
    """F1: the program that made the images."""

    name: Public[str]
    version: Public[str]
    commit: Public[str | None] = Field(description="Commit of the source, or SHA-256 of its files if it is not known.")

    @classmethod
    def at_commit(cls, commit: str | None) -> Self:
        """Return this version of this product, at a commit."""
        return cls(name="DataLens Service", version=version("datalens-service"), commit=commit)


class Fingerprint(Finite):
    """F1: ties the report to the records without revealing anything about them."""

    scheme: Public[str]
    value: str | None = None


class DatasetSection(Finite):
    """F1, F5: the public side of the private data set."""

    id: Public[str | None]
    fingerprint: Public[Fingerprint]
    public_schema: AllPublic[Schema]


class MechanismSection(BaseModel):
    """F10: equal releases; parameters of the mechanism stand beside these members."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    mechanism: str
    name: str
    count: int = Field(ge=1)
    noise_stddev: int
    sensitivity_squared: str
    units_zero_out: int
    units_replace_one: int
    units_zero_out_total: int
    units_replace_one_total: int

    @classmethod
    def from_release(cls, release: PlannedRelease) -> Self:
        """State mechanism, count, every parameter, sensitivity and price of a release; public."""
        return cls(
            **release.describe(),
            units_zero_out_total=release.cost(),
            units_replace_one_total=release.cost(NeighboringRelation.REPLACE_ONE),
        )


class PluginSection(PluginOrigin):
    """The package that brought a method."""

    notice: str


class MethodSection(Finite):
    """The request with every default filled in, and the plan that was made before a record was read."""

    name: Public[str]
    spec: AllPublic[dict[str, Any]]
    plan: AllPublic[tuple[MechanismSection, ...]]
    plugin: AllPublic[PluginSection | None] = Field(default=None, exclude_if=operator.not_)


class MeasureSection(Measure):
    """F21: a figure with its explanation."""

    title: Public[str]
    meaning: Public[str]
    status_label: Public[str]

    @classmethod
    def from_measure(cls, measure: Measure, images: str = "synthetic") -> Self:
        """Explain a figure by its metric, with another word for `images` that are not synthetic."""
        metric, label = METRICS[measure.name], STATUS_LABELS[measure.status]
        title, meaning = (text.replace("synthetic", images) for text in (metric.title, metric.meaning))
        return cls(**measure.model_dump(), title=title, meaning=meaning, status_label=label)


class IndividualSection(IndividualFigures):
    """A released histogram of realised individual ε, its mean and its quantiles."""

    meaning: str


class PrivacySection(PrivacyFigures):
    """F2 to F20 and F22 to F25: the privacy guarantee and its limits."""

    trust: Public[tuple[str, ...]]
    mechanisms: AllPublic[tuple[MechanismSection, ...]]
    recomputation: Public[Recomputation]
    assumptions: Public[tuple[Assumption, ...]] = Field(min_length=1)
    data_accesses: Public[tuple[DataAccess, ...]] = Field(min_length=1)
    evidence: Public[str]
    lifetime_note: Public[str]
    linked_datasets: tuple[str, ...] | None = None
    linked_note: Public[str]
    policy: Public[Policy]
    public_data: Public[PublicData]
    hyperparameters: Public[Hyperparameters]
    caveats: Public[tuple[str, ...]] = Field(min_length=1)
    audit: Public[Audit]
    limits: Public[tuple[str, ...]] = Field(min_length=1)


class IndexEntry(Finite):
    """The place of a required field."""

    field: Public[str]
    title: Public[str]
    paths: Public[tuple[str, ...]]


class Seal(Finite):
    """F26: shows whether the report is as it was written."""

    scheme: Public[str]
    sha256: Public[str] = Field(pattern=r"^[0-9a-f]{64}$")
    account_entries: int | None = Field(
        default=None, description="Length of the account's journal when the report was written; for the owner."
    )
    account_head: str | None = Field(default=None, description="Hash of its last entry then; for the owner.")


class ReportDocument(Finite):
    """A privacy report. Losses are rounded up, remaining budgets are rounded down."""

    format: Public[Literal["datalens-report/3"]]
    view: Public[Literal["owner", "releasable"]]
    synthetic: Public[bool] = Field(description="Whether synthetic images are released; false for a classifier.")
    public_images: Public[Literal[True] | None] = Field(
        default=None, description="Public images, or parts of them, are released; left out where they are not."
    )
    product: Public[Product]
    date: Public[datetime.date]
    contact: Public[str] = Field(min_length=1)
    dataset: Public[DatasetSection]
    index: Public[tuple[IndexEntry, ...]] = Field(min_length=1)
    summary: Public[tuple[str, ...]] = Field(min_length=1)
    usefulness: Public[tuple[str, ...]]
    measures_notice: Public[str]
    measures: Public[tuple[MeasureSection, ...]]
    per_class: tuple[ClassFigure, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    person_caveats: tuple[str, ...] | None = Field(
        default=None,
        description="Persons in the images that were measured on who have training images, too; in the owner's copy "
        "only, where there are some.",
    )
    anonymity: Public[Anonymity | None] = Field(
        default=None, description="Arguments for and against anonymity; absent from reports of earlier versions."
    )
    confusion: ConfusionTable | None = Field(
        default=None, description="Table of confusions of a classifier, in the owner's copy only."
    )
    attacks: Public[AttacksSection | None] = Field(
        default=None, description="If the owner had asked for attacks by then."
    )
    individual_epsilon: AllPublic[IndividualSection | None] = Field(
        default=None,
        description="Figures of a job that released a histogram of individual epsilon; covered by the guarantee.",
    )
    privacy: Public[PrivacySection]
    method: Public[MethodSection]
    seal: Public[Seal]
    signature: AllPublic[Signature | None] = Field(description="Signature of the installation that made the report.")

    @model_validator(mode="after")
    def _others_see_nothing_private(self) -> Self:
        if self.view == "releasable":
            of_the_owner = (self.per_class, self.unavailable, self.person_caveats, self.confusion)
            if any(of_the_owner) or not all(one.releasable for one in self.measures):
                raise ValueError("a releasable report holds a figure that is for the owner")
            if self.attacks is not None and self.attacks.findings:
                raise ValueError("a releasable report tells what attacks found, which is for the owner")
            if any(one is not None for one in self._of_the_account()):
                raise ValueError("a releasable report tells of the account, which is for the owner")
        return self

    def sealed(self) -> dict[str, Any]:
        """Return the report as JSON, with the seal over everything else."""
        content = self.as_given()
        return {**content, "seal": {**content["seal"], "sha256": compute_seal(content)}}

    def as_given(self) -> dict[str, Any]:
        """Return the report as JSON, without the members that only others have."""
        absent = {name for name in _OPTIONAL if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=absent)

    def _of_the_account(self) -> tuple[object, ...]:
        """Return everything that changes if another upload shares a record with this one."""
        account = (self.seal.account_entries, self.seal.account_head, self.dataset.fingerprint.value)
        opened_on = _DATE.fullmatch(self.privacy.policy.set_on)
        return (*account, opened_on, self.privacy.lifetime, self.privacy.linked_datasets)


def compute_seal(content: dict[str, Any]) -> str:
    """Hash everything but the seal and the signature by SHA-256."""
    sealed = {key: value for key, value in content.items() if key not in ("seal", MEMBER)}
    canonical = json.dumps(sealed, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def check(content: bytes) -> None:
    """Refuse a report that is not complete, or not as it was written."""
    try:
        given = parse_document(content)
        document = ReportDocument.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ReportIncomplete(f"The report of this job is not complete: {place}: {first['msg']}.") from error
    except ValueError as error:
        raise ReportIncomplete("The report of this job is not JSON.") from error
    # Also members that a model would fill in by a default have to be there.
    if document.as_given() != given:
        raise ReportIncomplete("The report of this job is not complete: a part is missing.")
    if document.seal.sha256 != compute_seal(given):
        raise ReportIncomplete("The report of this job was changed after it was sealed.")
    try:
        signer(content)
    except SignatureInvalid as error:
        raise ReportIncomplete("The report of this job was changed after it was signed.") from error


def json_schema() -> dict[str, Any]:
    """Return the published JSON Schema: every member is required, none may be added."""
    schema = ReportDocument.model_json_schema(mode="serialization")
    for model in (schema, *schema["$defs"].values()):
        if "properties" in model:
            # Also where a model knows a default: whoever reads the report does not.
            model["required"] = [name for name in model["properties"] if name not in _OPTIONAL | _OPTIONAL_WITHIN]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:datalens-service:privacy-report:3",
        **schema,
    }
