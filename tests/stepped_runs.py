"""A run that tests make step by step: its account comes with the first step, and its script is looked into."""

from typing import Any

from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import Account
from datalens_service.methods import ExecutionOptions, Method, Plan
from datalens_service.methods.driver import Training
from datalens_service.methods.public_start import PublicImages
from datalens_service.methods.script import Extras, Outcome, Resumed, RunInputs
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

PRICE = (8.0, 1e-4)


class SteppedRun:
    """One job, of which nothing has happened yet.

    Args:
        public: Images that it starts from.
        resumed: Where another process was.
    """

    def __init__(
        self,
        method: Method,
        plan: Plan,
        data: Dataset,
        public: PublicImages | None = None,
        resumed: Resumed | None = None,
        price: tuple[float, float] = PRICE,
        options: ExecutionOptions | None = None,
    ) -> None:
        inputs = RunInputs(TrainingRandomness(0), options or ExecutionOptions(), price, public, resumed)
        self._start = method, plan, data
        self._inputs = inputs
        self._training: Training | None = None
        self._locals: dict[str, Any] = {}

    def begin(self, account: Account | None = None) -> Training:
        """The driver; with the account that it is given first."""
        if self._training is None:
            self._training = Training(*self._start, account or UnchargedAccount(), self._inputs)
        return self._training

    def step(self, step: int, account: Account, noise: Any = None) -> None:
        """Make a release, unless it lies before the state that the run began with."""
        training = self.begin(account)
        training._account = account
        if step >= training.made:
            assert step == training.made
            self._note_locals()
            training.step(noise or NoiseSource())

    @property
    def steps(self) -> int:
        """Of the whole plan, or of the branch that was taken."""
        return self.begin().plan.steps

    def outcome(self) -> Outcome:
        """What there is so far."""
        return self.begin().outcome()

    def result(self) -> Any:
        """The model so far."""
        return self.outcome().model

    @property
    def extras(self) -> Extras:
        """What is released beside it."""
        return self.outcome().extras

    def local(self, name: str) -> Any:
        """What the script, or one that it began with, has under a name when it asks its next question, or had last."""
        self._note_locals()
        return self._locals[name]

    def vault(self, handle: Any) -> Any:
        """What only the driver has: what a handle of the script stands for."""
        return self.begin()._vaults.of(handle)

    def _note_locals(self) -> None:
        training = self.begin()
        training.look()
        script: Any = training._script
        while script is not None and script.gi_frame is not None:
            self._locals.update(script.gi_frame.f_locals)
            script = script.gi_yieldfrom
