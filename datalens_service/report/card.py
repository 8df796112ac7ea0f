"""The card: a small public JSON file in which every download describes how it was made."""

from __future__ import annotations

import datetime
import operator
from typing import Any, Final, Literal

from pydantic import Field

from datalens_service.base.audience import AllPublic, Public, public_part
from datalens_service.base.fields import Finite, Stated
from datalens_service.base.plugins import PluginOrigin
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.evaluation.measures import Measure
from datalens_service.mechanisms import PlannedRelease
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.models.public_source import PublicEncoder, PublicGenerator, PublicSource
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.report.build import Report
from datalens_service.report.document import Product
from datalens_service.report.privacy_statement import Tier
from datalens_service.report.result_wording import choose_wording

FORMAT: Final = "datalens-card/1"


class CardImages(Finite):
    """Shape and classes of the images."""

    channels: Public[int]
    height: Public[int]
    width: Public[int]
    class_names: Public[tuple[str, ...]]
    preparation: AllPublic[PrepareSettings | None] = Field(
        default=None, exclude_if=operator.not_, description="How the private images were brought to this size, if so."
    )


class CardMechanism(Finite):
    """Equal releases that were made."""

    label: Public[str]
    count: Public[int] = Field(ge=1)
    noise_stddev: Public[int]
    ledger_units: Public[int] = Field(alias="units", description="Ledger units of all of them under zero-out.")
    sampling: AllPublic[Block | None] = Field(
        default=None, exclude_if=operator.not_, description="How batches were drawn, if they were."
    )

    @classmethod
    def from_release(cls, release: PlannedRelease) -> CardMechanism:
        return cls(
            label=release.mechanism.label(),
            count=release.count,
            noise_stddev=release.mechanism.noise_stddev,
            ledger_units=release.cost(),
            sampling=release.mechanism.block(),
        )


class CardPrivacy(Finite):
    """The guarantee; ε is rounded up."""

    unit: Public[str]
    num_units: Public[int] = Field(ge=1)
    records_per_unit: Public[int] = Field(default=1, ge=1, description="Most training images of one unit.")
    classes_per_unit: Public[int] = Field(default=1, ge=1, description="Most classes that one unit has images of.")
    neighboring_relation: Public[Literal["zero_out"]]
    epsilon: Public[Stated] = Field(ge=0)
    delta: Public[Stated] = Field(gt=0, lt=1)
    mu: Public[Stated] = Field(ge=0)
    ledger_units: Public[int] = Field(alias="units", ge=0, description="Charged, in 1e-15 of μ².")
    slack: Public[int] = Field(
        default=0, ge=0, exclude_if=operator.not_, description="Charged beside it, in 1e-18 of δ."
    )
    epsilon_replace_one: Public[Stated] = Field(ge=0)
    individual: AllPublic[IndividualFigures | None] = Field(
        default=None, exclude_if=operator.not_, description="Released histogram of realised individual ε, if any."
    )
    tier: Public[Tier]
    mechanisms: Public[tuple[CardMechanism, ...]]
    not_covered: Public[tuple[str, ...]]

    @classmethod
    def from_report(cls, report: Report) -> CardPrivacy:
        privacy = report.privacy
        return cls(
            unit=privacy.unit,
            num_units=privacy.num_units,
            records_per_unit=privacy.records_per_unit,
            classes_per_unit=report.public_schema.classes_per_unit,
            neighboring_relation="zero_out",
            epsilon=privacy.headline.epsilon,
            delta=privacy.delta,
            mu=privacy.headline.mu,
            ledger_units=privacy.headline.ledger_units,
            slack=privacy.headline.slack,
            epsilon_replace_one=privacy.replace_one.epsilon,
            individual=report.individual,
            tier=privacy.tier,
            mechanisms=tuple(CardMechanism.from_release(release) for release in privacy.releases),
            not_covered=privacy.scope.not_covered,
        )


class Card(Finite):
    """The public essence of a report."""

    format: Public[Literal["datalens-card/1"]] = FORMAT
    synthetic: Public[bool] = Field(default=True, description="Whether synthetic images are released.")
    product: Public[Product]
    date: Public[datetime.date]
    method: Public[str]
    plugin: AllPublic[PluginOrigin | None] = Field(
        default=None, exclude_if=operator.not_, description="The package that brought the method, if it is a plug-in."
    )
    public_images: AllPublic[PublicSource | None] = Field(
        default=None, exclude_if=operator.not_, description="Public images that went into it, if any."
    )
    encoder: AllPublic[PublicEncoder | None] = Field(
        default=None, exclude_if=operator.not_, description="Public encoder through which images are seen, if any."
    )
    generator: AllPublic[PublicGenerator | None] = Field(
        default=None, exclude_if=operator.not_, description="Installed generator whose images were chosen, if any."
    )
    working_size: Public[str] = Field(
        default="", exclude_if=operator.not_, description="How much of large images the method sees, if not all."
    )
    appearance: Public[str] = Field(
        default="", exclude_if=operator.not_, description="What the images look like, if known."
    )
    contact: Public[str] = Field(default="", exclude_if=operator.not_, description="Whom to ask.")
    images: Public[CardImages]
    privacy: Public[CardPrivacy]
    measures: Public[tuple[Measure, ...]]

    @classmethod
    def from_report(cls, report: Report) -> Card:
        """Build the card from the public fields of a report alone."""
        report = public_part(report)
        schema = report.public_schema
        made = cls(
            product=report.product,
            date=report.date,
            synthetic=choose_wording(report.result).synthetic,
            method=report.method.name,
            plugin=report.method.plugin,
            public_images=report.public_inputs.images,
            encoder=report.public_inputs.encoder,
            generator=report.public_inputs.generator,
            working_size=report.method.working_size,
            appearance=report.method.rationale,
            contact=report.contact or "",
            images=CardImages(**schema.model_dump(include=set(CardImages.model_fields))),
            privacy=CardPrivacy.from_report(report),
            measures=report.measures,
        )
        return public_part(made)


def card(report: Report) -> dict[str, Any]:
    """Return the card of a report as JSON-compatible values."""
    return Card.from_report(report).model_dump(mode="json")
