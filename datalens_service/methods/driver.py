"""The driver of a run: makes the releases that its script asks for, and keeps everything that the script may not have.

It alone has account, noise, steps, replay of stored sums, the branch of a plan and kept states. A release happens in
its frame: an error there never reaches the script, which is closed.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.checkpoint import TEACHERS, State
from datalens_service.base.errors import StateConflict
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import Account
from datalens_service.mechanisms.apart import Apart
from datalens_service.mechanisms.confined import HERE
from datalens_service.mechanisms.private_records import WallBroken
from datalens_service.mechanisms.vaults import Vaults
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.public_start import check_same_size
from datalens_service.methods.script import Ask, Kept, Outcome, Resumed, RunInputs, Script
from datalens_service.models.released import join_parts, select_part
from datalens_service.privacy.randomness import NoiseSource

_BRANCH: Final = "content"
"""The name under which kept states hold the branch since version 1.0."""


class Training:
    """A run in progress.

    Args:
        method: The method whose script runs.
        plan: The releases that will be charged.
        dataset: The records, which the script never sees.
        account: The account that is charged.
        inputs: Inputs of the run; a state that the account keeps replaces the one in here.

    Attributes:
        made: Releases made so far, those of earlier processes included.

    Raises:
        InvalidSpec: Public images have another size than the private ones.
    """

    def __init__(self, method: Method, plan: Plan, dataset: Dataset, account: Account, inputs: RunInputs) -> None:
        if inputs.public is not None:
            check_same_size(dataset.schema, inputs.public.schema)
        self._vaults = Vaults(dataset, Apart() if inputs.options.apart else HERE)
        self._plan, self._paths, self._account = plan, plan.paths(), account
        self._lengths = partial(method.lengths, schema=dataset.schema, public=inputs.public is not None)
        resumed = self._read_kept() or inputs.resumed
        self.made = 0 if resumed is None else resumed.step
        # The state of teachers is private: the script gets the rest.
        self._teachers = {} if resumed is None else select_part(resumed.state, TEACHERS)
        self._script: Script = method.run(plan, self._vaults.records, replace(inputs, resumed=_public(resumed)))
        self._released: Any = None
        self._ask: Ask | None = None
        self._outcome: Outcome | None = None

    @property
    def plan(self) -> Plan:
        """Return the plan, without branches once one was taken, so that it is what is charged in all."""
        return self._paths[0] if len(self._paths) == 1 else self._plan

    @property
    def branch(self) -> str:
        """Return the name of the branch that was taken; empty before, and if the plan has none."""
        taken = [name for name in self._plan.branches if self._plan.along(name) == self.plan]
        return taken[0] if taken else ""

    def lengths(self) -> dict[int, int]:
        """Estimate long releases: by the number of each, how many ordinary ones take as long."""
        return self._lengths(self.plan)

    def look(self) -> Ask | None:
        """Return the question to be answered next, after the work of the script before it; None behind the last one.

        Raises:
            WallBroken: The question is none that was planned.
        """
        if self._ask is None and self._outcome is None:
            try:
                self._ask = self._script.send(self._released)
            except StopIteration as ended:
                self._outcome = ended.value
            else:
                self._follow(self._ask)
        return self._ask

    def step(self, noise: NoiseSource) -> None:
        """Make the release that is asked for, or hand out again what was stored of it.

        Raises:
            BudgetExceeded: The account does not pay for it; `outcome` may have a result without it.
            ContributionFailed: A computation over the records failed.
        """
        ask = self.look()
        if ask is None:
            raise RuntimeError("all releases are made")
        if ask.keep is not None:
            self._keep(ask.keep)
        try:
            self._restore_teachers(ask)
            self._released = self._vaults.release(
                ask.records,
                ask.mechanism,
                ask.contribution,
                ask.released,
                step=self.made,
                account=self._account,
                noise=noise,
            )
        # The script is closed, not told: it could otherwise learn from what was raised, and when.
        except BaseException:
            self._script.close()
            raise
        self._ask = None
        self.made += 1

    def checkpoint(self) -> State:
        """Return the private state from which another process may continue; empty where it has to replay."""
        ask = self.look()
        if ask is None or ask.checkpoint is None:
            return {}
        self._restore_teachers(ask)
        teachers = self._vaults.state(ask.records)
        # Without the state of teachers a resumed run would skip the sums from which they have to learn again.
        return teachers and ask.checkpoint() | join_parts({TEACHERS: teachers})

    @property
    def can_stop(self) -> bool:
        """Tell whether there is something to hand out without the next release and all later ones."""
        ask = self.look()
        return ask is None or (self.made > 0 and ask.so_far is not None)

    def outcome(self) -> Outcome:
        """Return the script's outcome, or its outcome so far."""
        ask = self.look()
        made = self._outcome if ask is None else ask.so_far and ask.so_far()
        if made is None:
            raise RuntimeError("there is nothing to hand out yet")
        return made

    def _restore_teachers(self, ask: Ask) -> None:
        """Restore the teachers for the first question of a resumed run."""
        if self._teachers:
            self._vaults.restore(ask.records, self._teachers)
            self._teachers = {}

    def _follow(self, ask: Ask) -> None:
        """Keep the paths of the plan on which this release is the next one, at this price."""
        asked = ask.mechanism.label(), ask.mechanism.price(1)
        # Paths share their first releases, so several may still be open after this one.
        steps = [(path, path.mechanism_at(self.made)) for path in self._paths]
        self._paths = tuple(path for path, next_ in steps if next_ and (next_.label(), next_.price(1)) == asked)
        if not self._paths:
            raise WallBroken("A run asks for the releases of its plan, and for no other.")

    def _keep(self, kept: Kept) -> None:
        branch = {_BRANCH: np.frombuffer(self.branch.encode(), dtype=np.uint8)} if self._plan.branches else {}
        self._account.advance(self.made, kept.state | branch, kept.iterates)

    def _read_kept(self) -> Resumed | None:
        latest = self._account.latest()
        if latest is None:
            return None
        step, state = latest
        iterates = tuple(self._account.iterates())
        return Resumed(step, *self._without_branch(state), iterates)

    def _without_branch(self, state: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], str]:
        if not self._plan.branches:
            return state, ""
        branch = state[_BRANCH].tobytes().decode()
        if branch not in self._plan.branches:
            raise StateConflict("The state of this job is not one of its method.")
        self._paths = (self._plan.along(branch),)
        return {name: value for name, value in state.items() if name != _BRANCH}, branch


def _public(resumed: Resumed | None) -> Resumed | None:
    if resumed is None:
        return None
    state = {name: value for name, value in resumed.state.items() if not name.startswith(TEACHERS)}
    return resumed._replace(state=state)
