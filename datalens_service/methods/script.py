"""A run is one function that asks: it yields questions, is sent what was released, and returns what it made of that.

    def run(self, plan, records, inputs):
        center = yield Ask(records, mechanism, contribution, released)
        ...
        return Outcome(Generator(...))

A driver (`driver.py`) makes the releases. So a script holds no account, no noise and no sum, and an error of a
contribution passes it by. One script begins with another's by `yield from`; what a noisy count decides is a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator as Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.base.progress import Tell, be_silent
from datalens_service.mechanisms import Mechanism
from datalens_service.mechanisms.individual_histogram import IndividualFigures
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.randomness import TrainingRandomness

if TYPE_CHECKING:
    from datalens_service.base.checkpoint import State
    from datalens_service.mechanisms.private_records import PrivateRecords
    from datalens_service.mechanisms.private_shards import PrivateShards
    from datalens_service.mechanisms.unit_records import UnitRecords
    from datalens_service.methods.public_start import PublicImages
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
        apart: Whether each contribution is computed in a process of its own, which ends with it.
    """

    device: str = "cpu"
    folder: Path | None = None
    group: ProcessGroup = SINGLE_PROCESS
    public_models: Path | None = None
    encoder: Path | None = None
    tell: Tell = be_silent
    apart: bool = False


class Resumed(NamedTuple):
    """Where an earlier process of the same job was.

    Attributes:
        step: Number of the next release.
        state: What the script gave with the question of that release.
        branch: Name of the branch that the plan took before, if it has any.
        iterates: Blocks of weights (steps, weights) that the script gave with earlier states.
    """

    step: int
    state: dict[str, Any]
    branch: str = ""
    iterates: tuple[NDArray[np.float32], ...] = ()


@dataclass(frozen=True)
class RunInputs:
    """What a run is given beside its plan and the records.

    Attributes:
        randomness: Seeds for everything that the guarantee does not rest on.
        options: Where it computes.
        price: ε of the whole plan and its δ, which files that are released may state.
        public: Images that were declared public, for a run to start from.
        resumed: Where it goes on; None: at its beginning.
    """

    randomness: TrainingRandomness
    options: ExecutionOptions = field(default_factory=ExecutionOptions)
    price: tuple[float, float] = (float("inf"), 1.0)
    public: PublicImages | None = None
    resumed: Resumed | None = None

    @property
    def pool(self) -> PublicImages:
        """The public images of a method that makes nothing without them."""
        if self.public is None:
            raise InvalidSpec("The method makes its images of public ones, and was given none.")
        return self.public


class Extras(NamedTuple):
    """What a run releases beside its model.

    Attributes:
        files: Each of which anybody may get.
        individual: Statistics about individual ε, if they were released.
    """

    files: tuple[ReleasedFile, ...] = ()
    individual: IndividualFigures | None = None


class Outcome(NamedTuple):
    """What a run hands out.

    Attributes:
        model: What it was run for.
        start: The released model that training started from; None without a warm start.
        extras: What is released beside them.
    """

    model: ReleasedModel
    start: Generator | None = None
    extras: Extras = Extras()

    @property
    def generator(self) -> Generator:
        """The model of a warm start, which draws images."""
        if not isinstance(self.model, Generator):
            raise TypeError(f"a start that makes a {self.model.result} draws no images")
        return self.model


class Kept(NamedTuple):
    """Released numbers that are kept in the place of all sums before a question; a resumed run begins with them.

    Attributes:
        state: Everything that the rest of the run needs.
        iterates: (steps, weights) of a job that keeps them: the weights at which the dropped sums were taken.
    """

    state: dict[str, NDArray[Any]]
    iterates: NDArray[np.float32] | None = None


class Ask(NamedTuple):
    """A question: one charged, noisy sum over private records.

    Attributes:
        records: Behind the wall.
        mechanism: The release that was planned for this step.
        contribution: A function of a module, of rows and of `released`: what the mechanism sums.
        released: Made of earlier releases and of public values.
        so_far: What there is to hand out without this release and all later ones; None: nothing yet.
        keep: A state that takes the place of all earlier sums; None: they stay.
        checkpoint: Gives the state before this release, for a run whose stored sums are dear to replay; the driver adds
            what teachers know.
    """

    records: PrivateRecords | UnitRecords | PrivateShards
    mechanism: Mechanism[Any, Any]
    contribution: Callable[..., Any]
    released: object
    so_far: Callable[[], Outcome] | None = None
    keep: Kept | None = None
    checkpoint: Callable[[], State] | None = None


Script = Coroutine[Ask, Any, Outcome]
"""A run in progress."""


def as_start(script: Script) -> Script:
    """Run a warm start: what it has on the way is handed out as the start that it is."""
    released = None
    while True:
        try:
            ask = script.send(released)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome
        so_far = ask.so_far and partial(_as_start, ask.so_far)
        released = yield ask._replace(so_far=so_far)


def _as_start(so_far: Callable[[], Outcome]) -> Outcome:
    model = so_far().generator
    return Outcome(model, model)
