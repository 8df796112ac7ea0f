"""Runs what may wait in a thread, and gives up with the patience of the request if all threads stay in use.

The framework would wait for a thread without an end, and take a further one to validate the model that is returned.
"""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, Final, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from anyio import CapacityLimiter, WouldBlock
from fastapi.routing import APIRoute

from datalens_service.base.errors import StoreUnavailable
from datalens_service.store import patience

_BUSY: Final = "All threads of the service stayed in use, so nothing happened; repeat."

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


async def run_in_thread(
    call: Callable[Parameters, Returned], /, *arguments: Parameters.args, **named: Parameters.kwargs
) -> Returned:
    """Call a function in a thread.

    Raises:
        StoreUnavailable: None became free while the request may wait.
    """
    threads, borrower = anyio.to_thread.current_default_thread_limiter(), object()
    await _borrow(threads, borrower)
    try:
        # The limit is kept above, where waiting for it ends.
        return await run_at_once(call, *arguments, **named)
    finally:
        threads.release_on_behalf_of(borrower)


async def _borrow(threads: CapacityLimiter, borrower: object) -> None:
    try:
        threads.acquire_on_behalf_of_nowait(borrower)
    except WouldBlock:
        with patience.waiting():
            with anyio.move_on_after(patience.seconds_left(patience.SECONDS)):
                await threads.acquire_on_behalf_of(borrower)
                return
        raise StoreUnavailable(_BUSY) from None


async def run_at_once(
    call: Callable[Parameters, Returned], /, *arguments: Parameters.args, **named: Parameters.kwargs
) -> Returned:
    """Call a function in a thread beside all others: what ends a request waits for none of them."""
    return await anyio.to_thread.run_sync(partial(call, *arguments, **named), limiter=CapacityLimiter(1))


class ThreadedRoute(APIRoute):
    """A route whose operation runs in a thread, unless it is asynchronous.

    The function names the operation: `get_job` is `getJob`. Its first successful response is the status of its answer.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        first, *others = endpoint.__name__.split("_")
        options["operation_id"] = first + "".join(map(str.title, others))
        successes = [status for status in options["responses"] or () if int(status) < HTTPStatus.BAD_REQUEST]
        options["status_code"] = options["status_code"] or min(successes, default=None)
        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else _threaded(endpoint), **options)


def _threaded(operation: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(operation)
    async def call(**values: Any) -> Any:
        return await run_in_thread(operation, **values)

    return call
