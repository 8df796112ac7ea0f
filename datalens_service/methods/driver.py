"""The driver of a run: makes the releases that its script asks for, and keeps everything that the script may not have.

Account, noise, steps, replay of stored sums, the branch of a plan and kept states are its own. A release happens in its
frame: what it raises never reaches the script, which is closed.
"""

from __future__ import annotations

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
"""Name of the branch among the numbers of a kept state; version 1.0 has stored it so."""


class Training:
    """A run in progress.

    Args:
        method: Whose script it is.
        plan: What will be charged.
        dataset: The records, which stay outside of the wall from here on.
        account: The books.
        inputs: Without the state that a kept one of the account replaces.

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
        # What teachers knew is private: the script gets the rest.
        self._teachers = {} if resumed is None else select_part(resumed.state, TEACHERS)
        self._script: Script = method.run(plan, self._vaults.records, replace(inputs, resumed=_public(resumed)))
        self._released: Any = None
        self._ask: Ask | None = None
        self._outcome: Outcome | None = None

    @property
    def plan(self) -> Plan:
        """Without branches once one was taken: what is charged in all."""
        return self._paths[0] if len(self._paths) == 1 else self._plan

    @property
    def branch(self) -> str:
        """Name of the branch that was taken; empty before, and of a plan without branches."""
        taken = [name for name in self._plan.branches if self._plan.along(name) == self.plan]
        return taken[0] if taken else ""

    def lengths(self) -> dict[int, int]:
        """By the number of a release that takes far longer than others: about how many of them it takes as long as."""
        return self._lengths(self.plan)

    def look(self) -> Ask | None:
        """The question to be answered next, after whatever the script does before it; None behind the last one.

        Raises:
            WallBroken: It is none that was planned.
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
            BudgetExceeded: The account does not pay for it; `outcome` may have what there is without it.
            ContributionFailed: What is computed from the records failed.
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
        except BaseException:
            self._script.close()
            raise
        self._ask = None
        self.made += 1

    def checkpoint(self) -> State:
        """Private state from which another process may go on; empty where that is not worth it, or not all of it."""
        ask = self.look()
        if ask is None or ask.checkpoint is None:
            return {}
        self._restore_teachers(ask)
        teachers = self._vaults.state(ask.records)
        return teachers and ask.checkpoint() | join_parts({TEACHERS: teachers})

    @property
    def can_stop(self) -> bool:
        """Whether there is something to hand out without the next release and all later ones."""
        ask = self.look()
        return ask is None or (self.made > 0 and ask.so_far is not None)

    def outcome(self) -> Outcome:
        """What the script returned, or has so far."""
        ask = self.look()
        made = self._outcome if ask is None else ask.so_far and ask.so_far()
        if made is None:
            raise RuntimeError("there is nothing to hand out yet")
        return made

    def _restore_teachers(self, ask: Ask) -> None:
        """Those of the first question of a resumed run."""
        if self._teachers:
            self._vaults.restore(ask.records, self._teachers)
            self._teachers = {}

    def _follow(self, ask: Ask) -> None:
        """Keep the paths of the plan on which this release is the next one, at this price."""
        asked = ask.mechanism.label(), ask.mechanism.price(1)
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
