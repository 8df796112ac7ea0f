"""The interface of a method: a plan that says what will be charged, and a run that asks for exactly that."""

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
"""Bytes per record and channel: 60,000 images of MNIST are measured in 2.1 GiB."""


class Plan(Frozen):
    """Everything a run will charge, known before it reads a record; public.

    With `branches` a run makes `releases`, then those of one branch, which the values released until then decide. The
    price is that of the dearest branch, in units and in slack (docs/mechanisms/branches.md).
    """

    releases: tuple[PlannedRelease, ...]
    branches: dict[str, tuple[PlannedRelease, ...]] = Field(
        default={},
        exclude_if=operator.not_,
        description="Branches by name; empty if no released value decides anything.",
    )

    @property
    def steps(self) -> int:
        """Return the largest number of releases."""
        return max(sum(release.count for release in path.releases) for path in self.paths())

    @property
    def images(self) -> int:
        """Return the largest number of images voted on in the whole run."""
        counts = [[each.count * each.mechanism.images_voted_on() for each in path.releases] for path in self.paths()]
        return max(map(sum, counts))

    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Return the largest cost of the whole run in ledger units; the one under zero-out is reserved."""
        return max(sum(release.cost(relation) for release in path.releases) for path in self.paths())

    @property
    def slack(self) -> int:
        """Return the largest slack beside the units, in 1e-18 of δ."""
        return max(sum(release.slack for release in path.releases) for path in self.paths())

    def paths(self) -> tuple[Plan, ...]:
        """List the plans that a run may turn out to follow: one without branches for each of them."""
        return tuple(map(self.along, self.branches)) if self.branches else (self,)

    def mechanism_at(self, step: int) -> AnyMechanism | None:
        """Return the mechanism of release number `step` of a plan without branches; None behind the last one."""
        for release in self.releases:
            if step < release.count:
                return release.mechanism
            step -= release.count
        return None

    def all_releases(self) -> tuple[PlannedRelease, ...]:
        """Return the releases before and in all branches."""
        return (*self.releases, *(release for branch in self.branches.values() for release in branch))

    def describe_releases(self) -> list[dict[str, Any]]:
        """Describe every release by its public parameters, and by the branch that it belongs to, if any."""
        described = [release.describe() for release in self.releases]
        for name, branch in self.branches.items():
            described += [release.describe() | {"branch": name} for release in branch]
        return described

    def along(self, branch: str) -> Plan:
        """Return the plan of a run that takes `branch`."""
        return Plan(releases=(*self.releases, *self.branches[branch]))

    def charge(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> Charge:
        """Return units and slack of the whole run."""
        return Charge(self.cost(relation), self.slack)


def named(value: Any) -> Any:
    """Expand `"moments"`, which is short for `{"name": "moments"}`."""
    return {"name": value} if isinstance(value, str) else value


class Method(Frozen, ABC):
    """Parameters of a training method; frozen, part of the spec.

    Attributes:
        facts: Facts about the method; every class that has a name states its own.
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
        """Return the kind of released model: "generator" or "classifier"."""
        return self.facts.result

    @property
    def needs_public_images(self) -> bool:
        """Tell whether it makes nothing without images that were declared public."""
        return self.facts.public_images == "material"

    @abstractmethod
    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan the releases that fit into `ledger_units`.

        Raises:
            InfeasiblePlan: `ledger_units` does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """Plan the releases that fit into (ε, δ).

        Raises:
            InfeasiblePlan: The budget does not pay for one step.
            InvalidSpec: The parameters do not fit the schema.
        """
        return self.plan(schema, limit_units(epsilon, delta))

    def settle(self, schema: Schema, epsilon: float, delta: float) -> Self:
        """Fill in what a request left out, where that follows from public numbers."""
        return self

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """Warn, from public numbers, of what a buyer of the plan should know."""
        return ()

    def refusal_of_public_data(self) -> str:
        """Explain why these parameters rule out public data, which the method takes otherwise; empty if they do not."""
        return ""

    def public_inputs(self) -> PublicInputs:
        """Return the encoder with weights of its own, and the installed generator, that these parameters name."""
        return NO_PUBLIC_INPUTS

    def evidence_levels(self) -> Levels | None:
        """Return how much evidence images need with these parameters."""
        return self.facts.levels

    def network_bytes(self, schema: Schema) -> float:
        """Return the peak memory of its networks, or of vectors of images."""
        return self.facts.memory.at(schema)

    def working_bytes(self, schema: Schema) -> float:
        """Return the memory of its records and of everything made with them, beside the program; on a processor."""
        return max(self.network_bytes(schema), _BYTES_OF_A_PIXEL * schema.num_units * schema.dimensions)

    def kept_bytes(self, plan: Plan) -> int:
        """Return the bytes that a job of this plan keeps beside its model and its figures."""
        return 0

    @property
    def releases_public_images(self) -> bool:
        """Tell whether its generators hand out public images, or parts of them."""
        return self.needs_public_images

    def max_ranks(self, schema: Schema) -> int:
        """Return the largest number of processes that a run shares its work among; 1 if it does not."""
        return 1

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        """Estimate long releases: by the number of each, how many ordinary ones take as long.

        Args:
            plan: The plan without branches, once a branch was taken.
            schema: The estimate uses its public numbers alone.
            public: True if the run starts from public images.
        """
        return {}

    def describe_branch(self, branch: str) -> str:
        """Explain in one sentence why a run took a branch of its plan; empty where plans have none."""
        return ""

    @abstractmethod
    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        """Ask for the releases of `plan`, one after the other, and return the outcome; a generator function.

        It sees private records only through what is sent to it (docs/mechanisms/wall.md).
        """
