"""What a method is: a plan that says what will be charged, and a loop that does exactly that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

if TYPE_CHECKING:
    import numpy as np

    from datalens_service.data.dataset import Dataset
    from datalens_service.models.generator import Generator


class PlannedRelease(BaseModel):
    """`count` equal releases of one mechanism, in the order in which they will be charged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    count: int = Field(ge=1)
    units_each: int = Field(ge=1, description="Ledger units of one release under zero-out.")
    units_each_replace_one: int = Field(ge=1)
    images_each: int = Field(default=0, ge=0, description="Images that teachers vote on in one release.")
    mechanism: dict[str, Any]


class Plan(BaseModel):
    """Everything a run will charge, known before it reads a record; public."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    releases: tuple[PlannedRelease, ...]

    @property
    def steps(self) -> int:
        """Number of releases."""
        return sum(release.count for release in self.releases)

    @property
    def images(self) -> int:
        """Images voted on in the whole run."""
        return sum(release.count * release.images_each for release in self.releases)

    @property
    def units(self) -> int:
        """Ledger units of the whole run under zero-out: what is reserved and charged."""
        return sum(release.count * release.units_each for release in self.releases)

    @property
    def units_replace_one(self) -> int:
        """The same under replace-one: shown beside it."""
        return sum(release.count * release.units_each_replace_one for release in self.releases)


def planned(mechanism: Mechanism[Any, Any], count: int = 1, images_each: int = 0) -> PlannedRelease:
    """The plan entry of `count` releases of `mechanism`, from the same numbers that will be charged."""
    return PlannedRelease(
        label=mechanism.label(),
        count=count,
        units_each=mechanism.cost(NeighboringRelation.ZERO_OUT),
        units_each_replace_one=mechanism.cost(NeighboringRelation.REPLACE_ONE),
        images_each=images_each,
        mechanism=mechanism.describe(),
    )


class Loop(Protocol):
    """A run in progress. Its state is private until `generator` hands out the released part."""

    @property
    def steps(self) -> int:
        """Number of releases this loop will make."""

    def may_stop_before(self, step: int) -> bool:
        """Whether a generator exists without `step` and all later ones."""

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release number `step` and learn from it."""

    def generator(self) -> Generator:
        """The released artefact after the steps made so far."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything the next step needs; private, may be empty if replaying is cheap."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""


class Method(BaseModel, ABC):
    """Parameters of a training method; frozen, part of the spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def plan(self, schema: Schema, units: int) -> Plan:
        """The releases that fit into `units` of μ² (ledger units).

        Raises:
            InfeasiblePlan: `units` does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """

    @abstractmethod
    def start(self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, device: str) -> Loop:
        """A loop that makes the releases of `plan` on `dataset`."""
