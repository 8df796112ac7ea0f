"""What a method is: a plan that says what will be charged, and a run that does exactly that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import Account, AnyMechanism
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.process_group import SINGLE_PROCESS, ProcessGroup

if TYPE_CHECKING:
    import numpy as np

    from datalens_service.data.dataset import Dataset
    from datalens_service.models.generators.generator import Generator
    from datalens_service.models.released import ReleasedModel


@dataclass(frozen=True)
class ExecutionOptions:
    """Where a run computes: it changes speed, not results.

    Attributes:
        device: "cpu", "cuda", "cuda:1", …
        folder: Private to the job and on a disk, for what does not fit into memory; None takes the system's folder for
            temporary files.
        group: Processes that share its teachers; this one is rank 0.
    """

    device: str = "cpu"
    folder: Path | None = None
    group: ProcessGroup = SINGLE_PROCESS


class PlannedRelease(BaseModel):
    """`count` equal releases of one mechanism, in the order in which they will be charged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: AnyMechanism = Field(discriminator="name")
    count: int = Field(default=1, ge=1)

    def units(self, relation: NeighboringRelation) -> int:
        """Ledger units of all of them: what the mechanism itself will charge."""
        return self.count * self.mechanism.cost(relation)


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
        return sum(release.count * release.mechanism.images_voted_on() for release in self.releases)

    def units(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Ledger units of the whole run; those under zero-out are reserved and charged."""
        return sum(release.units(relation) for release in self.releases)


class TrainingRun(Protocol):
    """A run in progress. Its state is private until `result` hands out the released part."""

    @property
    def steps(self) -> int:
        """Number of releases this run will make."""

    def may_stop_before(self, step: int) -> bool:
        """Whether there is a result without `step` and all later ones."""

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Make release number `step` and learn from it."""

    def result(self) -> ReleasedModel:
        """The released model after the steps made so far."""

    def initial_generator(self) -> Generator | None:
        """The released model that training started from; None without a warm start."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything the next step needs; private, may be empty if replaying is cheap."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""


def named(value: Any) -> Any:
    """`"moments"` is short for `{"name": "moments"}`."""
    return {"name": value} if isinstance(value, str) else value


class Method(BaseModel, ABC):
    """Parameters of a training method; frozen, part of the spec.

    Attributes:
        result: Kind of released model that it makes: "generator" or "classifier".
    """

    result: ClassVar[str] = "generator"

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def plan(self, schema: Schema, units: int) -> Plan:
        """The releases that fit into `units` of μ² (ledger units).

        Raises:
            InfeasiblePlan: `units` does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """What whoever pays for the plan should know before; from public numbers."""
        return ()

    @abstractmethod
    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run that makes the releases of `plan` on `dataset`."""
