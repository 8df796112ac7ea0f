"""What a method is: a plan that says what will be charged, and a run that does exactly that."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, final, runtime_checkable

from pydantic import Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import Account, PlannedRelease
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.models.generators.generator import Generator
from datalens_service.models.public_source import PublicEncoder, PublicGenerator
from datalens_service.phases import Tell, be_silent
from datalens_service.privacy.accounting import Charge, NeighboringRelation, limit_units
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.strict import Frozen

if TYPE_CHECKING:
    from datalens_service.checkpoint import State
    from datalens_service.data.dataset import Dataset
    from datalens_service.models.released import ReleasedFile, ReleasedModel


@dataclass(frozen=True)
class ExecutionOptions:
    """Where a run computes: it changes speed, not results.

    Attributes:
        device: "cpu", "cuda", "cuda:1", …
        folder: Private to the job and on a disk, for what does not fit into memory; None takes the system's folder for
            temporary files.
        group: Processes that share its teachers; this one is rank 0.
        public_models: Where what was learned from public images alone is kept for later runs; None keeps nothing.
        encoder: File of the owner's own encoder, if the method names one by its SHA-256.
        tell: Told of the share of a long step that is done, or of what comes behind the last step.
    """

    device: str = "cpu"
    folder: Path | None = None
    group: ProcessGroup = SINGLE_PROCESS
    public_models: Path | None = None
    encoder: Path | None = None
    tell: Tell = be_silent


class Plan(Frozen):
    """Everything a run will charge, known before it reads a record; public.

    With `branches` a run makes `releases`, then those of one branch, which what was released until then decides. The
    price is that of the dearest branch, in units and in slack (docs/mechanisms/branches.md).
    """

    releases: tuple[PlannedRelease, ...]
    branches: dict[str, tuple[PlannedRelease, ...]] = Field(
        default={}, exclude_if=operator.not_, description="By name; empty where nothing is decided on the way."
    )

    @property
    def steps(self) -> int:
        """Number of releases, at most."""
        return max(sum(release.count for release in path.releases) for path in self.paths())

    @property
    def images(self) -> int:
        """Images voted on in the whole run, at most."""
        counts = [[each.count * each.mechanism.images_voted_on() for each in path.releases] for path in self.paths()]
        return max(map(sum, counts))

    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Ledger units of the whole run, at most; those under zero-out are reserved."""
        return max(sum(release.cost(relation) for release in path.releases) for path in self.paths())

    @property
    def slack(self) -> int:
        """Beside the units, in 1e-18 of δ, at most."""
        return max(sum(release.slack for release in path.releases) for path in self.paths())

    def paths(self) -> tuple[Plan, ...]:
        """What a run may turn out to follow: one plan without branches for each of them."""
        return tuple(map(self.along, self.branches)) if self.branches else (self,)

    def all_releases(self) -> tuple[PlannedRelease, ...]:
        """Those of every branch."""
        return (*self.releases, *(release for branch in self.branches.values() for release in branch))

    def describe_releases(self) -> list[dict[str, Any]]:
        """Public parameters of every release, with the branch that it belongs to, if any."""
        described = [release.describe() for release in self.releases]
        for name, branch in self.branches.items():
            described += [release.describe() | {"branch": name} for release in branch]
        return described

    def along(self, branch: str) -> Plan:
        """The plan of a run that takes `branch`."""
        return Plan(releases=(*self.releases, *self.branches[branch]))

    def charge(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> Charge:
        """Units and slack of the whole run."""
        return Charge(self.cost(relation), self.slack)


class Extras(NamedTuple):
    """What a run releases beside its model.

    Attributes:
        files: Each of which anybody may get.
        individual: Statistics about individual ε, if they were released.
    """

    files: tuple[ReleasedFile, ...] = ()
    individual: IndividualFigures | None = None


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

    def extras(self, epsilon: float, delta: float) -> Extras:
        """What is released beside the model, after the last step.

        Args:
            epsilon: What the plan costs.
            delta: At this δ.
        """

    def state(self) -> State:
        """Everything the next step needs; private, may be empty if replaying is cheap."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""


@runtime_checkable
class UnevenRun(Protocol):
    """A run some steps of which take far longer than others."""

    def lengths(self) -> dict[int, int]:
        """By their number, how many of the others they take about as long as; from public numbers."""


def step_lengths(run: TrainingRun) -> dict[int, int]:
    """Of those steps that are longer than others."""
    return run.lengths() if isinstance(run, UnevenRun) else {}


@runtime_checkable
class BranchingRun(Protocol):
    """A run whose plan has branches, once it has taken one."""

    @property
    def followed_plan(self) -> Plan:
        """Without branches: what the run turned out to follow."""

    def rationale(self) -> str:
        """Which branch was taken, in one sentence; from released values."""


def named(value: Any) -> Any:
    """`"moments"` is short for `{"name": "moments"}`."""
    return {"name": value} if isinstance(value, str) else value


class Method(Frozen, ABC):
    """Parameters of a training method; frozen, part of the spec.

    Attributes:
        result: Kind of released model that it makes: "generator" or "classifier".
        starts_from_public_data: Whether its runs have `StartsFromPublic.start_from`, for images declared public.
        needs_public_images: Whether it makes nothing without them.
    """

    result: ClassVar[str] = "generator"
    starts_from_public_data: ClassVar[bool] = False
    needs_public_images: ClassVar[bool] = False

    @abstractmethod
    def plan(self, schema: Schema, units: int) -> Plan:
        """The releases that fit into `units` of μ² (ledger units).

        Raises:
            InfeasiblePlan: `units` does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """The releases that fit into (ε, δ).

        Raises:
            InfeasiblePlan: The budget does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """
        return self.plan(schema, limit_units(epsilon, delta))

    def settle(self, schema: Schema, epsilon: float, delta: float) -> Self:
        """The same with what a request left out, where that follows from public numbers."""
        return self

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """What whoever pays for the plan should know before; from public numbers."""
        return ()

    def refusal_of_public_data(self) -> str:
        """Why these parameters do not go with public data, where the method does; empty if they do."""
        return ""

    def public_encoder(self) -> PublicEncoder | None:
        """The public encoder with weights of its own on which the result rests; None without one."""
        return None

    def public_generator(self) -> PublicGenerator | None:
        """The installed generator of whose images the result is made; None without one."""
        return None

    def kept_bytes(self, plan: Plan) -> int:
        """What a job of this plan keeps beside its model and its figures."""
        return 0

    @property
    def releases_public_images(self) -> bool:
        """Whether its generators hand out public images, or parts of them."""
        return self.needs_public_images

    def max_ranks(self, schema: Schema) -> int:
        """Processes among which a run shares its work out at most; 1: it does not."""
        return 1

    @abstractmethod
    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run that makes the releases of `plan` on `dataset`."""


class WalledMethod(Method):
    """Parameters of a method whose runs see private records through charged sums alone (docs/mechanisms/wall.md)."""

    @final
    def create_run(
        self, plan: Plan, dataset: Dataset, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run that gets the records behind the wall."""
        return self.start_run(plan, PrivateRecords.from_dataset(dataset), randomness, options)

    @abstractmethod
    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run that makes the releases of `plan` on `records`."""
