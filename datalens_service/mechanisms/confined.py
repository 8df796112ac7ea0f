"""Calls with private records in hand: whatever they raise becomes an error that carries nothing of it.

A message, a type or a traceback may say what the records are. So the error is one of two, neither has a cause, and the
job ends by it after the release was charged.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn, Protocol, TypeVar

from datalens_service.base.errors import ContributionFailed

Made = TypeVar("Made")

FAILED: Final = (
    "A computation over the private records failed. What it raised may depend on them, so it is not told. What was "
    "charged stays charged."
)
_ALLOCATOR: Final = "DefaultCPUAllocator"
"""Messages of torch's `RuntimeError` begin with it when main memory does not suffice."""


def confined(function: Callable[..., Made], *arguments: Any) -> Made:
    """Call a function that sees private records.

    Raises:
        ContributionFailed: It raised something.
        MemoryError: It lacked memory, which says more of the machine than of records.
    """
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (whatever it is, it may carry a private value)
        lacked = lacks_memory(error)
    # Python would chain an error that is raised above to the one that was caught.
    raise MemoryError if lacked else ContributionFailed(FAILED)


def confined_items(made: Iterator[Made]) -> Iterator[Made]:
    """Yield what such a function yields, one item after the other; a None ends it."""
    while (item := confined(next, made, None)) is not None:
        yield item


def refused(why: str) -> ContributionFailed:
    """Return the error for rows that cannot be summed; `why` is a note for the author and never leaves the job."""
    error = ContributionFailed(FAILED)
    error.add_note(why)
    return error


class Calls(Protocol):
    """A place where functions that see private records are called; it raises as `confined` does."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and return its result."""

    def items(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Call a generator function and yield its items."""


class CallsHere:
    """Calls each function in this process."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return confined(function, *arguments)

    def items(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        return confined_items(iter(confined(function, *arguments)))


HERE: Final = CallsHere()


def prepared(prepare: Callable[[], object], answer: Callable[..., Made]) -> Callable[..., Made]:
    """Prepare an answer before its release is charged; a failure becomes an answer that raises it.

    Features and teachers take longer than the sums made with them. So a job may be stopped meanwhile without a charge,
    and what they raise is raised once the release is charged.
    """
    try:
        prepare()
    except (ContributionFailed, MemoryError) as error:
        return partial(_fail, error)
    return answer


def _fail(error: Exception, *_batch: object) -> NoReturn:
    raise error


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory did not suffice."""
    # torch.OutOfMemoryError by name: torch may not be installed where this is read.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and _ALLOCATOR in str(error))
