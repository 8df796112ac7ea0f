"""The whole job: plan, then one charged release after the other, then a released model.

This is the file to read first. Everything private stays in `training`; everything that leaves it went through a
mechanism's `release`, which charged `account` before it drew noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from datalens_service.checkpoint import Checkpoints
from datalens_service.data.dataset import Dataset, Upload
from datalens_service.errors import BudgetExceeded, InvalidInput, InvalidSpec, JobStopped
from datalens_service.mechanisms import Account
from datalens_service.methods import ExecutionOptions, Plan, TrainingRun
from datalens_service.methods.appearance import describe_images
from datalens_service.methods.base import BranchingRun, Extras, step_lengths
from datalens_service.methods.public_start import PublicImages, describe_source
from datalens_service.models.generators.generator import Generator
from datalens_service.models.public_source import PublicSource
from datalens_service.phases import Phase
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import PlanSummary, TrainingSpec

if TYPE_CHECKING:
    from datalens_service.models.released import ReleasedModel


@runtime_checkable
class StartsFromPublic(Protocol):
    """A run that can begin with what public images teach."""

    def start_from(self, public: PublicImages) -> None:
        """Before any step."""


Observer = Callable[[Phase, int, int], None]
"""Called with (phase, value, maximum) before each step; public numbers only. Raises JobStopped to stop."""


class Previews(Protocol):
    """Shows what a run would hand out if it stopped here: released numbers only, so free of further cost."""

    def due(self) -> bool:
        """Whether enough time has passed since the last one."""

    def show(self, model: ReleasedModel) -> None:
        """Take the model after the releases made so far."""


LOCAL = ExecutionOptions()
"""The processor of this machine, in this process alone."""


@dataclass(frozen=True)
class Result:
    """What a run hands out; all of it may leave the house.

    Attributes:
        model: A generator or a classifier, as the method says; whatever is done with it is free of further cost.
        plan: What was planned to be charged; of a plan with branches, the path that was followed.
        cost: The price of all that was planned at the spec's δ.
        rationale: What the images look like, which branch was taken, and where the budget ended before the plan.
        steps_made: Releases made; fewer than planned after such a crash.
        initial_generator: The warm start before any vote, also released; None without one.
        extras: Files and figures that are released beside the model.
        public_source: Public images that the model started from; None without any.
    """

    model: ReleasedModel
    initial_generator: Generator | None
    plan: Plan
    cost: PlanSummary
    rationale: str
    steps_made: int
    extras: Extras = field(default_factory=Extras)
    public_source: PublicSource | None = None

    @property
    def generator(self) -> Generator:
        """The model of a method that makes generators.

        Raises:
            InvalidInput: The method makes another kind of model.
        """

        if not isinstance(self.model, Generator):
            raise InvalidInput(f"The result of this run is a {self.model.result}, not a generator.")
        return self.model


def run(
    spec: TrainingSpec,
    dataset: Dataset,
    *,
    account: Account,
    plan: Plan | None = None,
    observe: Observer | None = None,
    checkpoints: Checkpoints | None = None,
    previews: Previews | None = None,
    options: ExecutionOptions = LOCAL,
    public: Upload | None = None,
) -> Result:
    """Train a differentially private model.

    Guarantee: the result is ε-δ private for `spec.epsilon` and `spec.delta_at`, under zero-out of one
    unit of `dataset`, together with everything else charged to the same account.

    Args:
        spec: Method, budget, seed.
        dataset: Public schema, private records.
        account: The books: durable for what is handed out, a `MemoryAccount` outside of a service, an
            `UnchargedAccount` for what never leaves the process.
        plan: What was reserved; None plans by `spec`.
        observe: Progress and cancellation.
        checkpoints: Where to keep private state between steps, or None.
        previews: Who sees the model as it is between steps, or None.
        public: The images of `spec.public_data`, which is not looked up here; the guarantee does not cover them.

    Raises:
        InvalidSpec: Spec and data set do not fit together; nothing was charged.
        BudgetExceeded: The account does not pay for the releases without which there is no result.
    """
    plan = plan or spec.plan(dataset.schema)
    progress = _Progress(observe or _silent)
    told = replace(options, tell=progress)
    training = spec.method.create_run(plan, dataset, TrainingRandomness(spec.seed), told)
    progress.enter(training, 0)
    source = _start_from(public, training, spec)
    steps_made = _train(training, account, progress, checkpoints, previews)
    progress.fit()
    cost = spec.summarize(plan, dataset.schema)
    extras = training.extras(cost.epsilon_at_plan, cost.delta)
    followed, decided = _followed(training, plan)
    looks = describe_images(spec.method, plan, dataset.schema, pool=source is not None)
    rationale = f"{looks} {decided}".strip()
    model, start = training.result(), training.initial_generator()
    if steps_made < followed.steps:
        rationale = _describe_early_end(rationale, steps_made, followed.steps, model is start)
    return Result(model, start, followed, cost, rationale, steps_made, extras, source)


def _followed(training: TrainingRun, plan: Plan) -> tuple[Plan, str]:
    """A plan without branches, and which branch was taken if there was a choice."""
    return (training.followed_plan, training.rationale()) if isinstance(training, BranchingRun) else (plan, "")


def _describe_early_end(rationale: str, made: int, planned: int, is_start: bool) -> str:
    """What is still true of the rationale, and why the run ended."""
    first = "The result is the warm start alone." if is_start else rationale
    last = f"The budget ended after {made:,} of {planned:,} planned releases: a crash that loses noise costs budget."
    return f"{first} {last}".strip()


def public_images(upload: Upload | Dataset) -> PublicImages:
    """The training images of a data set whose owner declared all of it public."""
    return PublicImages(upload.schema, upload.train.images, upload.train.labels)


def _start_from(public: Upload | None, training: TrainingRun, spec: TrainingSpec) -> PublicSource | None:
    if public is None:
        if spec.method.needs_public_images:
            raise InvalidSpec(f"{spec.method.name} makes its images of public ones, and was given none.")
        return None
    if not isinstance(training, StartsFromPublic):
        raise InvalidSpec(f"{spec.method.name} does not start from public images.")
    images = public_images(public)
    training.start_from(images)
    method = spec.method
    return describe_source(images, verbatim=method.releases_public_images, held=method.needs_public_images)


class _Progress:
    """Says how far a run is; a step that takes as long as many others counts as many."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._training: TrainingRun | None = None
        self._step, self._reached = 0, 0

    def enter(self, training: TrainingRun, step: int) -> None:
        """A step begins; behind the last one, training has ended."""
        self._training, self._step = training, step
        self(0.0)

    def fit(self) -> None:
        """All releases are made."""
        self._training, self._reached = None, 0
        self(0.0)

    def __call__(self, share: float) -> None:
        """So much of the step is done, or of what comes behind the last one."""
        if self._training is None:
            # What was paid for is finished.
            with suppress(JobStopped):
                self._observe(Phase.FITTING, math.floor(99 * share), 100)
            return
        lengths, step = step_lengths(self._training), self._step
        before = step + sum(length - 1 for one, length in lengths.items() if one < step)
        maximum = self._training.steps + sum(length - 1 for length in lengths.values())
        # Only behind the last release is all of it done: then a request to cancel comes too late.
        self._reached = max(self._reached, before + math.floor(share * (lengths.get(step, 1) - 1)))
        self._observe(Phase.TRAINING, self._reached, maximum)


def _train(
    training: TrainingRun,
    account: Account,
    progress: _Progress,
    checkpoints: Checkpoints | None,
    previews: Previews | None,
) -> int:
    step = _resume(training, checkpoints)
    noise = NoiseSource()
    while step < training.steps:
        progress.enter(training, step)
        try:
            training.step(step, account, noise)
        except BudgetExceeded:
            if not training.may_stop_before(step):
                raise
            break
        step += 1
        if checkpoints is not None and checkpoints.due():
            checkpoints.save(step, training.state())
        if previews is not None and step < training.steps and training.may_stop_before(step) and previews.due():
            previews.show(training.result())
    progress.enter(training, training.steps)
    return step


def _resume(training: TrainingRun, checkpoints: Checkpoints | None) -> int:
    saved = checkpoints.load() if checkpoints is not None else None
    if saved is None:
        return 0
    step, state = saved
    if not state:
        return 0
    training.restore(state)
    return step


def _silent(phase: Phase, value: int, maximum: int) -> None:
    """Observe nothing."""
