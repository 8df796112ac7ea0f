"""What requests and answers look like. ε that was spent is rounded up, ε that remains is rounded down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from datalens_service.data.dataset import Schema
from datalens_service.data.units import MAXIMUM_RECORDS_PER_UNIT, NAME_PATTERN, UnitDeclaration
from datalens_service.data.upload import check_class_names
from datalens_service.errors import InvalidDataset
from datalens_service.privacy.accounting import mu_of_units, round_up
from datalens_service.spec import PlanSummary, TrainingSpec
from datalens_service.store.datasets import DatasetState, StoredDataset
from datalens_service.store.intakes import Intake
from datalens_service.store.joining import Joined
from datalens_service.store.statement import Statement
from datalens_service.strict import Flag, Integer, Number

Item = TypeVar("Item")

IDENTIFIER: Final = r"^[A-Za-z0-9_-]+$"
"""What ids consist of; anything else is refused before a database that takes no NUL sees it."""

DATASET_STATES: Final = {
    DatasetState.VALIDATING: "the upload is being read; there is no budget yet",
    DatasetState.INVALID: "the upload cannot be used; `/validation` tells its owner why",
    DatasetState.READY: "jobs can train on it",
    DatasetState.DELETED: "its records are gone; what was spent on them stays spent",
}


def listed(meanings: dict[Any, str]) -> str:
    """States and their meanings as a list in Markdown."""
    return "\n".join(f"- `{state}`: {meaning}" for state, meaning in meanings.items())


class Units(BaseModel):
    """The account in exact integers: 1e-15 of μ², which add up where ε does not."""

    limit: int
    charged: int = Field(
        description="Spent by releases that were made; of a frozen account also what only the charge log knows."
    )
    reserved: int = Field(description="Set aside for jobs that have not ended.")
    remaining: int = Field(description="What a new job may reserve.")


class BudgetRead(BaseModel):
    """The lifetime budget of a data set, shared by all data sets with the same records."""

    epsilon_limit: float = Field(description="ε of the whole lifetime at `delta`.")
    delta: float = Field(description="δ of every statement about this data set, and of every job on it.")
    epsilon_spent: float = Field(description="ε at `delta` of everything released so far, rounded up.")
    epsilon_reserved: float = Field(description="ε at `delta` of what is set aside for jobs, rounded up.")
    epsilon_remaining: float = Field(
        description="Largest ε a new job may name, rounded down. It is not limit minus spent: μ² adds up, ε does not."
    )
    mu_spent: float = Field(description="μ of the Gaussian trade-off curve of everything released, rounded up.")
    units: Units
    frozen_reason: str | None = Field(description="Why nothing can be spent: the account failed its audit.")

    @classmethod
    def of(cls, statement: Statement) -> Self:
        """What a statement shows."""
        return cls(
            epsilon_limit=statement.epsilon,
            delta=statement.delta,
            epsilon_spent=statement.epsilon_spent,
            epsilon_reserved=statement.epsilon_reserved,
            epsilon_remaining=statement.epsilon_remaining,
            mu_spent=round_up(mu_of_units(statement.spent_units), 6),
            units=Units(
                limit=statement.limit_units,
                charged=statement.spent_units,
                reserved=statement.reserved_units,
                remaining=statement.remaining_units,
            ),
            frozen_reason=statement.frozen_reason,
        )


class PrivacyLinks(BaseModel):
    """Where to go from an account."""

    entries: str = Field(description="The journal in portions; from it, a stranger can recompute the account.")


class PrivacyRead(BudgetRead):
    """The account of a data set, and where its journal ends."""

    linked_datasets: list[str] = Field(description="Other data sets that the same account pays for.")
    last_entry: int = Field(description="Number of the newest entry of the journal.")
    head_hash: str = Field(description="Its seal, SHA-256 over it and all before it: note it now and then.")
    links: PrivacyLinks

    @classmethod
    def with_head(cls, statement: Statement, dataset_id: str, linked: Sequence[str]) -> Self:
        """A statement with the head of the journal it was made from."""
        more = {
            "linked_datasets": linked,
            "last_entry": statement.entries,
            "head_hash": statement.head_hash,
            "links": PrivacyLinks(entries=f"/v1/datasets/{dataset_id}/privacy/entries"),
        }
        return cls.model_validate({**BudgetRead.of(statement).model_dump(), **more})


class DatasetForm(BaseModel):
    """Fields of an upload beside the file."""

    model_config = ConfigDict(extra="forbid")

    epsilon: Number | None = Field(
        default=None,
        gt=0,
        le=100,
        description="ε of the data set's whole lifetime. Left out only for records that were uploaded before: "
        "they keep the budget they have.",
    )
    delta: Number | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="δ, below 1/n; left out, it is min(1e-5, n^-1.1). For records that were uploaded before it has to "
        "be the δ of the budget they have.",
    )
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)] | None = Field(
        default=None, description="For people, printable; left out, it is the id."
    )
    classes: tuple[str, ...] | None = Field(
        default=None, description="Public names of the classes in label order, separated by commas."
    )

    unit: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        description="Word for one privacy unit if images are grouped, for example `patient`; left out, `group`.",
    )
    records_per_unit: Integer | None = Field(
        default=None,
        ge=1,
        le=MAXIMUM_RECORDS_PER_UNIT,
        description="Most training images of one unit; needed if, and only if, the upload groups its images. Public; "
        "statistics of images need this many times the noise.",
    )
    classes_per_unit: Integer | None = Field(
        default=None,
        ge=1,
        description="Most classes that images of one unit belong to; left out, no bound beside `records_per_unit`.",
    )

    public_test: Flag | None = Field(
        default=None,
        description="Whether the test split is public; left out, it is not. Figures measured on it may "
        "then be passed on; otherwise they are for the owner alone. Refused if it holds a training image.",
    )
    account: str | None = Field(
        default=None,
        max_length=64,
        pattern=IDENTIFIER,
        description="Id of a data set whose budget pays for this one, too, for ever: for data that grows, so that the "
        "parts can be trained on together. Leave out `epsilon` and `delta` then.",
    )
    leave_out_constant_images: Flag | None = Field(
        default=None,
        description="Whether training images of a single colour are left out, which would tie the data set to others "
        "that contain the same ones; left out, they stay.",
    )

    @property
    def units(self) -> UnitDeclaration | None:
        """What one unit is, if the images are grouped."""
        if self.records_per_unit is None:
            return None
        return UnitDeclaration(name=self.unit or "group", records=self.records_per_unit, classes=self.classes_per_unit)

    @model_validator(mode="after")
    def _units_are_whole(self) -> Self:
        if self.records_per_unit is None and (self.unit, self.classes_per_unit) != (None, None):
            raise ValueError("unit and classes_per_unit need records_per_unit.")
        return self

    @field_validator("name")
    @classmethod
    def _can_be_shown(cls, name: str | None) -> str | None:
        if name is not None and not name.isprintable():
            raise ValueError("The name must consist of printable characters.")
        return name

    @field_validator("classes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("classes")
    @classmethod
    def _can_be_told_apart(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            check_class_names(names or ())
        except InvalidDataset as error:
            raise ValueError(error.detail) from None
        return names


class DatasetRead(BaseModel):
    """A data set: what its owner declares public, and its budget. Records are never handed out."""

    id: str
    name: str
    state: DatasetState = Field(description=listed(DATASET_STATES))
    format: str | None = Field(description="Format of the upload; null before it was read.")
    created_at: datetime
    deleted_at: datetime | None
    schema_: Schema | None = Field(
        serialization_alias="schema", description="Shape, classes and n: public. Null before the upload was read."
    )
    has_test_split: bool = Field(description="Whether the owner's hold-out was uploaded with it.")
    privacy: BudgetRead | None = Field(description="Null unless the data set is or was ready.")
    joined: Joined | None = Field(
        default=None,
        description="For keys with `datasets:write`, null for others: the account that pays for it, if records of it "
        "were known. Private; deleted with the data.",
    )

    @classmethod
    def of(cls, dataset: StoredDataset, statement: Statement, joined: Joined | None = None) -> Self:
        """What is shown of a stored data set; `joined` to its owner only."""
        return cls(
            id=dataset.id,
            name=dataset.name,
            state=dataset.state,
            format=dataset.format,
            created_at=dataset.created_at,
            deleted_at=dataset.deleted_at,
            schema_=dataset.schema,
            has_test_split=dataset.has_test,
            privacy=BudgetRead.of(statement),
            joined=joined,
        )

    @classmethod
    def of_intake(cls, intake: Intake) -> Self:
        """What is shown of an upload that is not a data set, or not yet."""
        deleted = intake.state is DatasetState.DELETED
        return cls(
            id=intake.dataset_id,
            name=intake.form.get("name") or intake.dataset_id,
            state=intake.state,
            format=None,
            created_at=intake.created_at,
            deleted_at=intake.finished_at if deleted else None,
            schema_=None,
            has_test_split=False,
            privacy=None,
        )


class TrainingRequest(BaseModel):
    """What to train, and on what."""

    model_config = ConfigDict(extra="forbid")

    dataset_id: str = Field(max_length=64, pattern=IDENTIFIER)
    spec: TrainingSpec


class PlanRead(BaseModel):
    """What a job would cost. Nothing was reserved."""

    cost: PlanSummary
    fits: bool = Field(description="Whether the remaining budget covers it now.")
    budget: BudgetRead = Field(description="The account as it is.")
    budget_after: BudgetRead | None = Field(
        description="The account once this job is submitted, its cost reserved; null if it does not fit."
    )


class Page(BaseModel, Generic[Item]):
    """A portion of a list, newest first."""

    items: list[Item]
    has_more: bool
    next_cursor: str | None = Field(description="Value of `after` for the next portion.")
