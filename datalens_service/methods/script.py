"""A run is one function that asks: it yields questions, is sent what was released, and returns an outcome.

    def run(self, plan, records, inputs):
        center = yield Ask(records, mechanism, contribution, released)
        ...
        return Outcome(Generator(...))

A driver (`driver.py`) makes the releases. So a script holds no account, no noise and no sum, and an error of a
contribution never reaches it. One script begins with another's by `yield from`; a choice by a noisy count is an
ordinary condition.
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
    """The place where a run computes: it changes speed, not results.

    Attributes:
        device: "cpu", "cuda", "cuda:1", …
        folder: Private to the job and on a disk, for what does not fit into memory; None takes the system's folder for
            temporary files.
        group: Processes that share its teachers; this one is rank 0.
        public_models: Folder in which models of public images alone are kept for later runs; None keeps nothing.
        encoder: File of the owner's own encoder, if the method names one by its SHA-256.
        tell: Called with the share of a long step that is done, or of the work behind the last step.
        apart: True if each contribution is computed in a process of its own, which ends with it.
    """

    device: str = "cpu"
    folder: Path | None = None
    group: ProcessGroup = SINGLE_PROCESS
    public_models: Path | None = None
    encoder: Path | None = None
    tell: Tell = be_silent
    apart: bool = False


class Resumed(NamedTuple):
    """The point at which an earlier process of the same job stopped.

    Attributes:
        step: Number of the next release.
        state: The state that the script gave with the question of that release.
        branch: Name of the branch that the plan took before, if it has any.
        iterates: Blocks of weights (steps, weights) that the script gave with earlier states.
    """

    step: int
    state: dict[str, Any]
    branch: str = ""
    iterates: tuple[NDArray[np.float32], ...] = ()


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run beside its plan and the records.

    Attributes:
        randomness: Seeds for everything that the guarantee does not rest on.
        options: Device, folders and processes of its computation.
        price: ε of the whole plan and its δ, which files that are released may state.
        public: Images that were declared public, for a run to start from.
        resumed: The point at which it continues; None: at its beginning.
    """

    randomness: TrainingRandomness
    options: ExecutionOptions = field(default_factory=ExecutionOptions)
    price: tuple[float, float] = (float("inf"), 1.0)
    public: PublicImages | None = None
    resumed: Resumed | None = None

    @property
    def pool(self) -> PublicImages:
        """Return the public images of a method that makes nothing without them."""
        if self.public is None:
            raise InvalidSpec("The method makes its images of public ones, and was given none.")
        return self.public


class Extras(NamedTuple):
    """Values that a run releases beside its model.

    Attributes:
        files: Files that anybody may get.
        individual: Statistics about individual ε, if they were released.
    """

    files: tuple[ReleasedFile, ...] = ()
    individual: IndividualFigures | None = None


class Outcome(NamedTuple):
    """The released results of a run.

    Attributes:
        model: The model that the run is for.
        start: The released model that training started from; None without a warm start.
        extras: Files and statistics beside them.
    """

    model: ReleasedModel
    start: Generator | None = None
    extras: Extras = Extras()

    @property
    def generator(self) -> Generator:
        """Return the model of a warm start, which draws images."""
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
        records: Records behind the wall.
        mechanism: The release that was planned for this step.
        contribution: A function of a module, of rows and of `released`, that returns what the mechanism sums.
        released: Made of earlier releases and of public values.
        so_far: Returns what there is to hand out without this release and all later ones; None: nothing yet.
        keep: A state that takes the place of all earlier sums; None: they stay.
        checkpoint: Returns the state before this release, for a run whose stored sums are expensive to replay; the
            driver adds the state of teachers.
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
    """Run a warm start whose result so far, at each of its questions, is the start of what is handed out."""
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
