"""An `Account` whose step 0 is a later step of the job, for a run that begins after other releases."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.mechanisms import Account
from datalens_service.privacy.blocks import Block
from datalens_service.privacy.randomness import Integers


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
