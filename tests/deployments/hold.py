"""A place behind one release where job processes of a test stand still, so that it can interrupt them there.

However fast the job and however slow the test is: the job can neither end before it is interrupted, nor be interrupted
before it has come so far.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TESTS = Path(__file__).parents[1]
HOOK_PATH = os.pathsep.join(
    filter(None, [str(Path(__file__).parent / "held"), str(_TESTS), os.environ.get("PYTHONPATH")])
)
"""Has every process of Python load `held/sitecustomize.py`."""


class Hold:
    """Holds the processes that were started with its environment.

    Args:
        folder: For the file that tells them where to stand still.
    """

    def __init__(self, folder: Path) -> None:
        self._order = folder / "held-jobs"

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that may be held."""
        return {"PYTHONPATH": HOOK_PATH, "HELD_JOBS": str(self._order)}

    @contextmanager
    def behind(self, step: int, method: str = "store") -> Iterator[None]:
        """Meanwhile, they stand still when the account of their job has answered a method at `step`, or a later one.

        Args:
            step: Number of the release.
            method: `charge`, `charge_draw`, `store` or `advance`.
        """
        written = self._order.with_suffix(".new")
        written.write_text(f"{method} {step}")
        written.replace(self._order)
        try:
            yield
        finally:
            self._order.unlink()
