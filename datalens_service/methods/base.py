"""What a method is: a plan that says what will be charged, and a run that asks for exactly that."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Self

from pydantic import Field

from datalens_service.base.fields import Frozen
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import AnyMechanism, PlannedRelease
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.facts import Facts, Levels
from datalens_service.methods.script import RunInputs, Script
from datalens_service.models.public_source import NO_PUBLIC_INPUTS, PublicInputs
from datalens_service.privacy.accounting import Charge, NeighboringRelation, limit_units

_BYTES_OF_A_PIXEL: Final = 27
"""Of each record and channel: 60,000 images of MNIST are measured in 2.1 GiB."""


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

    def mechanism_at(self, step: int) -> AnyMechanism | None:
        """Of release number `step` of a plan without branches; None behind the last one."""
        for release in self.releases:
            if step < release.count:
                return release.mechanism
            step -= release.count
        return None

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


def named(value: Any) -> Any:
    """`"moments"` is short for `{"name": "moments"}`."""
    return {"name": value} if isinstance(value, str) else value


class Method(Frozen, ABC):
    """Parameters of a training method; frozen, part of the spec.

    Attributes:
        facts: Stated by every class that has a name; a subclass of another name states its own.
    """

    facts: ClassVar[Facts]

    @classmethod
    def __pydantic_init_subclass__(cls, **_named: Any) -> None:
        """Refuse a method that does not state its facts."""
        field = cls.model_fields.get("name")
        if field is None or field.is_required():
            return
        stated = [kind for kind in cls.__mro__ if issubclass(kind, Method) and "facts" in vars(kind)]
        if not stated or stated[0].model_fields["name"].default != field.default:
            raise TypeError(f"The method {field.default} does not state its facts: docs/integrations.md says which.")

    @property
    def result(self) -> str:
        """Kind of released model that it makes: "generator" or "classifier"."""
        return self.facts.result

    @property
    def needs_public_images(self) -> bool:
        """Whether it makes nothing without images that were declared public."""
        return self.facts.public_images == "material"

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

    def public_inputs(self) -> PublicInputs:
        """The encoder with weights of its own, and the installed generator, that these parameters name."""
        return NO_PUBLIC_INPUTS

    def evidence_levels(self) -> Levels | None:
        """When images show something, with these parameters."""
        return self.facts.levels

    def network_bytes(self, schema: Schema) -> float:
        """Memory of its networks, or vectors of images, at its peak."""
        return self.facts.memory.at(schema)

    def working_bytes(self, schema: Schema) -> float:
        """Memory of its records, and of everything that is made with them, beside the program; on a processor."""
        return max(self.network_bytes(schema), _BYTES_OF_A_PIXEL * schema.num_units * schema.dimensions)

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

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        """By the number of a release that takes far longer than others: about how many of them it takes as long as.

        Args:
            plan: Without branches, once one was taken.
            schema: As all of it from public numbers.
            public: Whether the run starts from public images.
        """
        return {}

    def describe_branch(self, branch: str) -> str:
        """Why a run took a branch of its plan, in one sentence; empty where plans have none."""
        return ""

    @abstractmethod
    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        """A generator function that asks for the releases of `plan`, one after the other, and returns the outcome.

        It sees private records through what it is sent alone (docs/mechanisms/wall.md).
        """
