"""The parts that every method with voting teachers shares: teachers, student, and the releases that a budget pays for.

A method of this kind adds its votes: DataLens one of several kinds, PATE-GAN scores.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec
from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import AnyVotes, PlannedRelease, VoteMechanism, VoteParameters
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import WITHOUT_A_START, Levels
from datalens_service.methods.sums.moments import Moments
from datalens_service.methods.voting.teachers import AnyTeacher, DenseTeacher
from datalens_service.models.teachers.partitions import partition_teachers
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, NeighboringRelation, smallest_noise_stddev
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

DEFAULT_STEPS = 150

_BYTES_OF_A_WEIGHT: Final = 12
"""Bytes of a weight with its optimiser, from `python -m benchmarks.memory`; a checkpoint in memory takes as many."""
_LARGEST_ENSEMBLE: Final = 8 * 2**30
"""An ensemble that is larger lies on a disk."""

TEACHER_SHORT_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "teacher_batch": ("teacher", "batch"),
    "teacher_steps": ("teacher", "steps"),
    "teacher_warmup_steps": ("teacher", "warmup_steps"),
    "teacher_learning_rate": ("teacher", "learning_rate"),
}

_KINDS: Final[dict[str, tuple[type[BaseModel], ...]]] = {"votes": get_args(AnyVotes), "teacher": get_args(AnyTeacher)}


class TeacherSettings(Method):
    """The teachers of a method, and the number of images they vote on."""

    name: str
    num_teachers: Integer = Field(default=4000, ge=1, le=100_000, description="N; one shard of records each.")
    teacher: Annotated[AnyTeacher, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=DenseTeacher(),
        description="A small fast network, the original's, or the best discriminator in closed form.",
    )
    shards: Literal["mixed", "class_pure"] = Field(
        default="mixed", description="class_pure: a teacher holds, and votes on, one class only."
    )
    images_per_step: Integer = Field(default=15, ge=1, le=1024, description="Synthetic images voted on per step.")

    def network_bytes(self, schema: Schema) -> float:
        """Return the memory of the student and of all teachers, except an ensemble so large that it is on a disk."""
        teachers = 0 if self.disk_bytes(schema) else 2 * _BYTES_OF_A_WEIGHT * self.count_weights(schema)
        return super().network_bytes(schema) + teachers

    def count_weights(self, schema: Schema) -> int:
        """Return the number of weights of all teachers that are networks."""
        return self.num_teachers * self.teacher.count_weights(schema)

    def disk_bytes(self, schema: Schema) -> int:
        """Return the size of the file of teachers that do not fit into memory, or 0."""
        size = _BYTES_OF_A_WEIGHT * self.count_weights(schema)
        return size if size > _LARGEST_ENSEMBLE else 0


class VotingMethod(TeacherSettings, ABC):
    """Teachers, student and plan, on which runs and teachers depend alone.

    Attributes:
        short_names: Short names of nested parameters, as `teacher_batch` for `teacher.batch`.
    """

    short_names: ClassVar[Mapping[str, tuple[str, str]]] = TEACHER_SHORT_NAMES

    vote_basis: Literal["pixels", "dct"] = Field(
        default="pixels", description="dct: vote on low-frequency cosine coefficients instead of pixels."
    )
    vote_dimensions: Integer = Field(default=64, ge=1, description="Coefficients of the dct basis.")
    noise_stddev: Integer | None = Field(default=None, ge=MINIMUM_NOISE_STDDEV, le=MAXIMUM_NOISE_STDDEV)
    steps: Integer | None = Field(
        default=None, ge=1, le=100_000, description="Votes on a batch; 150 if nothing is said."
    )
    z_dim: Integer = Field(default=50, ge=1, le=1024, description="Length of the student's latent vector.")
    student: Literal["deconv", "class_networks"] = Field(
        default="deconv", description="The original's generator, or a small one per class; not after a warm start."
    )
    image_step_size: Number = Field(default=1e-3, gt=0, description="γ: how far a vote moves an image.")
    student_learning_rate: Number | None = Field(
        default=None, gt=0, le=1, description="Adam's; 1e-3 as in the original, 1e-5 if left out after a warm start."
    )
    student_updates: Integer = Field(default=1, ge=1, le=100, description="Student steps per released vote.")
    student_averaging: Number = Field(default=0.0, ge=0, lt=1, description="Decay of the average of student weights.")
    warm_start: Annotated[Moments | None, BeforeValidator(named)] = Field(
        default=None, description="Start from released moments and let votes refine them."
    )
    refiner_width: Integer = Field(
        default=8, ge=1, le=256, description="Maps of the network that refines a warm start."
    )
    warm_start_share: Number = Field(default=0.95, gt=0, lt=1, description="Share of μ² for the warm start.")

    @model_validator(mode="before")
    @classmethod
    def _accept_flat(cls, parameters: Any) -> Any:
        return cls._nested(parameters) if isinstance(parameters, dict) else parameters

    @model_validator(mode="after")
    def _votes_fit_their_basis(self) -> Self:
        if self.vote_basis == "dct":
            try:
                self.vote_parameters().check(self.vote_dimensions)
            except InvalidSpec as error:
                raise ValueError(error.detail) from None
        return self

    def evidence_levels(self) -> Levels | None:
        return WITHOUT_A_START if self.warm_start is None else super().evidence_levels()

    @abstractmethod
    def vote_parameters(self) -> VoteParameters:
        """Return the parameters of this kind of vote."""

    @abstractmethod
    def build_votes(self, common: dict[str, Any]) -> VoteMechanism:
        """Build the mechanism of the votes from its common parameters."""

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan the releases of the warm start, if any, then as many votes as the rest pays for."""
        self._check(schema)
        if self.warm_start is None:
            return Plan(releases=(self._votes(schema, ledger_units),))
        start = self.warm_start.plan(schema, math.floor(self.warm_start_share * ledger_units))
        return Plan(releases=(*start.releases, self._votes(schema, ledger_units - start.cost())))

    def max_ranks(self, schema: Schema) -> int:
        """Return the number of partitions of teachers, which are not split."""
        return len(partition_teachers(self.num_teachers, self._class_groups(schema)))

    @property
    def resolved_student_learning_rate(self) -> float:
        """Return the named rate, or the default for this start: votes undo a good start unless they are gentle."""
        return self.student_learning_rate or (1e-5 if self.warm_start else 1e-3)

    def dimensions(self, schema: Schema) -> int:
        """Return the number of coordinates of one vote."""
        return schema.dimensions if self.vote_basis == "pixels" else self.vote_dimensions

    def _class_groups(self, schema: Schema) -> int:
        return schema.num_classes if self.shards == "class_pure" else 1

    def _check(self, schema: Schema) -> None:
        if self.num_teachers > schema.num_units:
            raise InvalidSpec(
                f"⟦method.num_teachers⟧ = {self.num_teachers} exceeds the {schema.num_units} units of this data set: "
                f"name at most {schema.num_units}, better about {max(1, schema.num_units // 15)}."
            )
        self.vote_parameters().check(self.dimensions(schema))
        if self.vote_basis == "dct" and self.vote_dimensions > schema.dimensions:
            raise InvalidSpec(f"⟦method.vote_dimensions⟧ must not exceed the {schema.dimensions} numbers of an image.")
        classes = schema.num_classes
        if self.shards == "class_pure" and (self.num_teachers % classes or self.images_per_step % classes):
            raise InvalidSpec(
                "With ⟦method.shards⟧ class_pure, ⟦method.num_teachers⟧ and ⟦method.images_per_step⟧ must be multiples "
                f"of {classes} classes."
            )

    def _votes(self, schema: Schema, ledger_units: int) -> PlannedRelease:
        mechanism = self._mechanism(schema)
        if self.noise_stddev is None:
            mechanism = self._calibrated(mechanism, ledger_units)
        affordable = ledger_units // mechanism.cost()
        count = affordable if self.steps is None and self.noise_stddev else min(affordable, self.steps or DEFAULT_STEPS)
        if count == 0:
            raise InfeasiblePlan(
                "ε does not pay for one step of votes: raise ⟦spec.epsilon⟧ or ⟦method.noise_stddev⟧, or lower "
                "⟦method.votes.top_k⟧ or ⟦method.images_per_step⟧."
            )
        return PlannedRelease.model_validate({"mechanism": mechanism.model_dump(), "count": count})

    def _mechanism(self, schema: Schema) -> VoteMechanism:
        """Build the vote with its own noise, or with the loudest until it is calibrated."""
        common = {
            "num_teachers": self.num_teachers,
            "images": self.images_per_step,
            "dimensions": self.dimensions(schema),
            "classes_voted_apart": self._class_groups(schema),
            "classes_per_unit": schema.classes_per_unit if self.shards == "class_pure" else 1,
            "noise_stddev": self.noise_stddev or MAXIMUM_NOISE_STDDEV,
        }
        return self.build_votes(common)

    def _calibrated(self, mechanism: VoteMechanism, ledger_units: int) -> VoteMechanism:
        steps = self.steps or DEFAULT_STEPS
        queries = mechanism.queries_per_unit(NeighboringRelation.ZERO_OUT)
        each = mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT)
        stddev = min(MAXIMUM_NOISE_STDDEV, smallest_noise_stddev(each, queries * steps, ledger_units))
        return mechanism.model_copy(update={"noise_stddev": stddev})

    @classmethod
    def _nested(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Move short names to where they belong, and drop those that do not apply to this kind."""
        nested = {name: value for name, value in parameters.items() if name not in cls.short_names}
        for name in parameters.keys() & cls.short_names.keys():
            group, member = cls.short_names[name]
            inner = nested.get(group, cls.model_fields[group].default)
            inner = inner.model_dump() if isinstance(inner, BaseModel) else named(inner)
            if isinstance(inner, dict) and member in _members(group, inner.get("name")):
                nested[group] = inner | {member: parameters[name]}
        return nested


def _members(group: str, kind: Any) -> set[str]:
    """Return the parameters of a kind of votes or teachers; of an unknown kind all, so that the kind is refused."""
    known = {model.model_fields["name"].default: set(model.model_fields) for model in _KINDS[group]}
    return known.get(kind, set()) if isinstance(kind, str) else set()
