"""The whole job: plan, then one charged release after the other, then a released model.

This is the file to read first. A method asks for releases, and `methods.driver` makes them; everything that leaves it
went through a mechanism's `release`, which charged `account` before anything was summed or drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from datalens_service.base.checkpoint import Checkpoints
from datalens_service.base.errors import BudgetExceeded, InvalidInput, InvalidSpec, JobStopped
from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Dataset, Upload
from datalens_service.mechanisms import Account
from datalens_service.methods import ExecutionOptions, Method, Plan
from datalens_service.methods.driver import Training
from datalens_service.methods.expected_quality import describe_images
from datalens_service.methods.public_start import PublicImages, describe_source
from datalens_service.methods.script import Extras, Resumed, RunInputs
from datalens_service.models.generators.generator import Generator
from datalens_service.models.public_source import NO_PUBLIC_INPUTS, PublicInputs
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import PlanSummary, TrainingSpec

if TYPE_CHECKING:
    from datalens_service.models.released import ReleasedModel


Observer = Callable[[Phase, int, int], None]
"""Called with (phase, value, maximum) before each step; public numbers only. Raises JobStopped to stop."""


class Previews(Protocol):
    """Shows the results of a run if it stopped here: released numbers only, so free of further cost."""

    def due(self) -> bool:
        """Tell whether enough time has passed since the last one."""

    def show(self, model: ReleasedModel) -> None:
        """Take the model after the releases made so far."""


LOCAL = ExecutionOptions()
"""The processor of this machine, in this process alone."""


@dataclass(frozen=True)
class Result:
    """The result of a run; all of it may leave the house.

    Attributes:
        model: A generator or a classifier, as the method says; every use of it is free of further cost.
        plan: The planned charges; of a plan with branches, the path that was followed.
        cost: The price of all that was planned at the spec's δ.
        rationale: The looks of the images, the branch that was taken, and whether the budget ended before the plan.
        steps_made: Releases made; fewer than planned where a crash lost charged draws and the budget ended early.
        initial_generator: The warm start before any vote, also released; None without one.
        extras: Files and figures that are released beside the model.
        public_inputs: Inputs of the model beside private records.
    """

    model: ReleasedModel
    initial_generator: Generator | None
    plan: Plan
    cost: PlanSummary
    rationale: str
    steps_made: int
    extras: Extras = field(default_factory=Extras)
    public_inputs: PublicInputs = NO_PUBLIC_INPUTS

    @property
    def generator(self) -> Generator:
        """Return the model of a method that makes generators.

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

    Guarantee: the result is (ε, δ)-differentially private for `spec.epsilon` and `spec.delta_at`, under zero-out of one
    unit of `dataset`, together with everything else charged to the same account.

    Args:
        spec: Method, budget, seed.
        dataset: Public schema, private records.
        account: Durable for what is handed out, a `MemoryAccount` outside of a service, an
            `UnchargedAccount` for what never leaves the process.
        plan: The plan that was reserved; None plans by `spec`.
        observe: Progress and cancellation.
        checkpoints: The file for private state between steps, or None.
        previews: Shows the model between steps, or None.
        public: The images of `spec.public_data`, which is not looked up here; the guarantee does not cover them.

    Raises:
        InvalidSpec: Spec and data set do not fit together; nothing was charged.
        BudgetExceeded: The account does not pay for the releases without which there is no result.
    """
    plan = plan or spec.plan(dataset.schema)
    method, cost = spec.method, spec.summarize(plan, dataset.schema)
    _check_public(spec, public)
    progress = _Progress(observe or _silent)
    inputs = RunInputs(
        TrainingRandomness(spec.seed),
        replace(options, tell=progress),
        (cost.epsilon_at_plan, cost.delta),
        None if public is None else public_images(public),
        _load(checkpoints),
    )
    training = Training(method, plan, dataset, account, inputs)
    _train(training, progress, checkpoints, previews)
    model, start, extras = training.outcome()
    used = _name_public_inputs(method, inputs.public)
    looks = describe_images(method, plan, dataset.schema, pool=used.images is not None)
    rationale = f"{looks} {method.describe_branch(training.branch) if training.branch else ''}".strip()
    if training.made < training.plan.steps:
        rationale = _describe_early_end(rationale, training.made, training.plan.steps, model is start)
    if isinstance(model, Generator):
        model, frequencies = _draw_as_declared(model, spec.class_shares)
        rationale = f"{rationale} {frequencies}".strip()
    return Result(model, start, training.plan, cost, rationale, training.made, extras, used)


def _draw_as_declared(model: Generator, declared: tuple[float, ...] | None) -> tuple[Generator, str]:
    """Return the model that draws classes as declared, and a sentence on how frequent they are unless in turn."""
    if declared is not None:
        return model.with_class_shares(declared), "Classes are as frequent among the images as was declared."
    counted = "Classes are as frequent among the images as released noisy counts say."
    return model, "" if model.class_shares is None else counted


def _describe_early_end(rationale: str, made: int, planned: int, is_start: bool) -> str:
    """Explain why the run ended, after the part of the rationale that still holds."""
    first = "The result is the warm start alone." if is_start else rationale
    last = f"The budget ended after {made:,} of {planned:,} planned releases: a crash that loses noise costs budget."
    return f"{first} {last}".strip()


def public_images(upload: Upload | Dataset) -> PublicImages:
    """Return the training images of a data set whose owner declared all of it public."""
    return PublicImages(upload.schema, upload.train.images, upload.train.labels)


def _check_public(spec: TrainingSpec, public: Upload | None) -> None:
    method = spec.method
    if public is None and method.needs_public_images:
        raise InvalidSpec(f"{method.name} makes its images of public ones, and was given none.")
    if public is not None and method.facts.public_images is None:
        raise InvalidSpec(f"{method.name} does not start from public images.")
    if public is not None and (refusal := method.refusal_of_public_data()):
        raise InvalidSpec(refusal)


def _name_public_inputs(method: Method, public: PublicImages | None) -> PublicInputs:
    if public is None:
        return method.public_inputs()
    images = describe_source(public, verbatim=method.releases_public_images, held=method.needs_public_images)
    return method.public_inputs().model_copy(update={"images": images})


class _Progress:
    """Reports the progress of a run; a step that takes as long as many others counts as many."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._training: Training | None = None
        self._step, self._reached = 0, 0

    def enter(self, training: Training, step: int) -> None:
        """Begin a step; behind the last one, training has ended."""
        self._training, self._step = training, step
        self(0.0)

    def fit(self) -> None:
        """Begin the fitting, once all releases are made."""
        self._training, self._reached = None, 0
        self(0.0)

    def __call__(self, share: float) -> None:
        """Report that so much of the step is done, or of the work behind the last one."""
        if self._training is None:
            # A run that paid for all its releases is finished, whoever asks it to stop.
            with suppress(JobStopped):
                self._observe(Phase.FITTING, math.floor(99 * share), 100)
            return
        lengths, step = self._training.lengths(), self._step
        before = step + sum(length - 1 for one, length in lengths.items() if one < step)
        maximum = self._training.plan.steps + sum(length - 1 for length in lengths.values())
        # Only behind the last release is all of it done: then a request to cancel comes too late.
        self._reached = max(self._reached, before + math.floor(share * (lengths.get(step, 1) - 1)))
        self._observe(Phase.TRAINING, self._reached, maximum)


def _train(training: Training, progress: _Progress, checkpoints: Checkpoints | None, previews: Previews | None) -> None:
    noise = NoiseSource()
    progress.enter(training, training.made)
    while training.made < training.plan.steps and (ask := training.look()) is not None:
        if checkpoints is not None and ask.checkpoint is not None and checkpoints.due():
            checkpoints.save(training.made, training.checkpoint())
        if previews is not None and training.can_stop and previews.due():
            previews.show(training.outcome().model)
        try:
            training.step(noise)
        except BudgetExceeded:
            if not training.can_stop:
                raise
            break
        progress.enter(training, training.made)
    if training.made < training.plan.steps:
        progress.enter(training, training.plan.steps)
    progress.fit()


def _load(checkpoints: Checkpoints | None) -> Resumed | None:
    """Load the point at which a checkpoint was written, if it holds a state."""
    saved = checkpoints.load() if checkpoints is not None else None
    return Resumed(*saved) if saved is not None and saved[1] else None


def _silent(phase: Phase, value: int, maximum: int) -> None: ...
