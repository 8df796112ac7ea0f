"""Rejection or diffusion: one noisy count says what the images show, and with it which method suits them.

    one noisy count of drawings, less the other records;
    then all releases of `rejection` where most are drawings, all those of `diffusion` where not.

Both are planned before, each for what the count leaves of the budget; one of them is charged. The choice is a function
of the released count, so it is covered by adaptive composition (docs/mechanisms/branches.md).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec, StateConflict
from datalens_service.mechanisms import Account, PlannedRelease, VectorSum
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Extras, Plan, TrainingRun, WalledMethod, step_lengths
from datalens_service.methods.descent.diffusion import Diffusion
from datalens_service.methods.last_layer.rejection import Rejection
from datalens_service.methods.public_start import PublicImages, check_same_size
from datalens_service.methods.sums.content_count import count_drawings, plan_count, read_count
from datalens_service.methods.sums.record_sums import StatelessRun
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.outlines.level_sets import Content
from datalens_service.privacy.accounting import compute_slack, delta_beside, limit_units
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.privacy.randomness import Integers, NoiseSource, TrainingRandomness
from datalens_service.voices import speak


class LaterSteps:
    """An account whose steps are counted from `first`; it books and keeps whatever the account does.

    Args:
        beside: Released values that every kept state gets as well, because sums of earlier steps are dropped for it.
    """

    def __init__(self, account: Account, first: int, beside: dict[str, NDArray[Any]]) -> None:
        self._account, self._first, self._beside = account, first, beside

    def replay(self, step: int) -> Integers | None:
        """The noisy sum stored under that step."""
        return self._account.replay(self._first + step)

    def charge(self, step: int, label: str, units: int, slack: int = 0) -> None:
        """Book a release."""
        self._account.charge(self._first + step, label, units, slack)

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        """Book a draw of a block."""
        return self._account.charge_draw(self._first + step, label, block)

    def store(self, step: int, noisy: Integers) -> None:
        """Keep a noisy sum."""
        self._account.store(self._first + step, noisy)

    def advance(self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None) -> None:
        """Keep a state in the place of all sums before `step`, those of earlier releases included."""
        self._account.advance(self._first + step, state | self._beside, iterates)

    def latest(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """The state kept last, as it was given."""
        kept = self._account.latest()
        if kept is None:
            return None
        step, state = kept
        return step - self._first, {name: value for name, value in state.items() if name not in self._beside}

    def iterates(self) -> list[NDArray[np.float32]]:
        """Of all states."""
        return self._account.iterates()


_CONTENT: Final = "content"
_LONG_MINUTES: Final = 5
_REASONS: Final[dict[Content, str]] = {
    "drawings": "outlines were modelled instead of pixels",
    "objects": "a network learned by noisy gradients to turn noise into images",
}


class RejectionOrDiffusion(WalledMethod):
    """Parameters of both methods (docs/methods.md)."""

    starts_from_public_data: ClassVar[bool] = True

    name: Literal["rejection_or_diffusion"] = "rejection_or_diffusion"
    drawings: Rejection = Field(default=Rejection(), description="Of images that are drawings.")
    objects: Diffusion = Field(
        default=Diffusion(), description="Of other images. Its warm start is the method `rejection`."
    )

    @model_validator(mode="after")
    def _content_is_measured_here(self) -> Self:
        if not isinstance(self.objects.warm_start, Rejection):
            raise ValueError(speak("⟦method.objects.warm_start⟧ has to be rejection."))
        if {self.drawings.warm_start.content, self.objects.warm_start.warm_start.content} != {"measured"}:
            raise ValueError("content is what this method measures: leave it out, or choose rejection or diffusion.")
        return self

    def plan(self, schema: Schema, units: int) -> Plan:
        """Sampled gradients are not planned by μ² alone.

        Raises:
            InvalidSpec: Always.
        """
        raise InvalidSpec("Sampled gradients are planned for ε and δ.")

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """The count, then a branch for each content, with the slack of sampled gradients set aside for both."""
        limit = limit_units(epsilon, delta_beside(compute_slack(delta, self.objects.slack), delta))
        count = plan_count(schema, limit)
        paid = count.cost()
        drawings = self.choose_method("drawings").plan(schema, limit - paid)
        objects = self._denoiser().plan_beside(schema, epsilon, delta, paid)
        branches = {"drawings": _with_slack(drawings, objects.slack), "objects": objects.releases}
        return Plan(releases=(count,), branches=branches)

    def choose_method(self, content: Content) -> Rejection | Diffusion:
        """What is run on images of that content."""
        return self.drawings.with_content("drawings") if content == "drawings" else self._denoiser()

    def _denoiser(self) -> Diffusion:
        start = self.objects.warm_start
        if not isinstance(start, Rejection):
            raise TypeError("the warm start of objects is rejection")
        return self.objects.model_copy(update={"warm_start": start.with_content("objects")})

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """How much longer objects take, and what is said of the denoiser."""
        minutes = math.ceil(self.objects.gradient_seconds(schema) / 60)
        time = [f"Gradients take about {minutes} minutes of one core."] if minutes >= _LONG_MINUTES else []
        said = [*time, *self._denoiser().warnings(plan.along("objects"), schema)]
        return tuple(f"If the images show objects: {sentence}" for sentence in said)

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> RejectionOrDiffusionRun:
        """A run of the count, and of the branch that it decides for."""
        return RejectionOrDiffusionRun(self, plan, records, randomness, options)


class RejectionOrDiffusionRun(StatelessRun):
    """The count, then the run of one method, one step later than it would be by itself."""

    def __init__(
        self,
        parameters: RejectionOrDiffusion,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        count = plan.releases[0].mechanism
        if not isinstance(count, VectorSum):
            raise TypeError("the first release of this plan is a count")
        self._parameters, self._plan, self._count = parameters, plan, count
        self._records, self._randomness, self._options = records, randomness, options
        self._public: PublicImages | None = None
        self._content: Content | None = None
        self._run: TrainingRun | None = None

    def start_from(self, public: PublicImages) -> None:
        """Let the classifier of either method begin with public images."""
        check_same_size(self._records.schema, public.schema)
        self._public = public

    @property
    def steps(self) -> int:
        """The count and the branch; before the count, the longest that it may decide for."""
        return self._plan.steps if self._run is None else 1 + self._run.steps

    @property
    def followed_plan(self) -> Plan:
        """The count and the releases of the branch."""
        return self._plan.along(self._decided())

    def rationale(self) -> str:
        """What the count decided."""
        content = self._decided()
        return f"By a noisy count, most records are {content}: {_REASONS[content]}."

    def lengths(self) -> dict[int, int]:
        """Of the chosen method, once it is known."""
        return {} if self._run is None else {step + 1: long for step, long in step_lengths(self._run).items()}

    def may_stop_before(self, step: int) -> bool:
        """Where the chosen method may."""
        return step > 0 and self._chosen().may_stop_before(step - 1)

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """The count, or a step of the chosen method."""
        if step == 0:
            self._choose(self._measure_content(account, noise))
            return
        later = LaterSteps(account, 1, {_CONTENT: np.frombuffer(self._decided().encode(), dtype=np.uint8)})
        self._chosen().step(step - 1, later, noise)

    def result(self) -> Generator:
        """Of the chosen method."""
        model = self._chosen().result()
        if not isinstance(model, Generator):
            raise TypeError("both methods make generators")
        return model

    def initial_generator(self) -> Generator | None:
        """Of the chosen method."""
        return self._chosen().initial_generator()

    def extras(self, epsilon: float, delta: float) -> Extras:
        """Of the chosen method."""
        return self._chosen().extras(epsilon, delta)

    def _measure_content(self, account: Account, noise: NoiseSource) -> Content:
        """What the count says, or what it said before its sum was dropped for a later state."""
        latest = account.latest()
        if latest is not None:
            return _read_content(latest[1])
        count = self._records.release(self._count, count_drawings, None, step=0, account=account, noise=noise)
        return read_count(count)

    def _choose(self, content: Content) -> None:
        method = self._parameters.choose_method(content)
        branch = Plan(releases=self._plan.branches[content])
        run: Any = method.start_run(branch, self._records, self._randomness, self._options)
        if self._public is not None:
            run.start_from(self._public)
        self._content, self._run = content, run

    def _decided(self) -> Content:
        if self._content is None:
            raise RuntimeError("the count comes first")
        return self._content

    def _chosen(self) -> TrainingRun:
        if self._run is None:
            raise RuntimeError("the count comes first")
        return self._run


def _with_slack(plan: Plan, slack: int) -> tuple[PlannedRelease, ...]:
    """Releases whose first is charged a slack, so that both branches cost the same of δ."""
    first = plan.releases[0]
    if not isinstance(first.mechanism, VectorSum):
        raise TypeError("a plan of rejection begins with a sum of vectors")
    mechanism = first.mechanism.model_copy(update={"slack": slack})
    return (first.model_copy(update={"mechanism": mechanism}), *plan.releases[1:])


def _read_content(state: dict[str, NDArray[Any]]) -> Content:
    name = state[_CONTENT].tobytes().decode()
    if name not in _REASONS:
        raise StateConflict("The state of this job is not one of this method.")
    return name
