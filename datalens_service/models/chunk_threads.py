"""Chunks of records side by side: one thread of a processor for each chunk, instead of all threads for one.

The operations of a chunk are many and small. Split over threads, each of them waits for all; chunks do not.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Chunk = TypeVar("Chunk")
Rows = TypeVar("Rows")


def map_in_threads(compute: Callable[[Chunk], Rows], chunks: Iterable[Chunk], device: torch.device) -> Iterator[Rows]:
    """Results in the order of the chunks; each is computed by one thread, whatever the number of threads is.

    Args:
        compute: Of one chunk; called in several threads at once.
        chunks: Taken from as results are.
        device: Where it computes; other devices than a processor take one chunk at a time.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield from map(compute, chunks)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from _in_order(pool, compute, chunks, threads + 1)
    finally:
        # Threads that start later take over the number that was set last.
        torch.set_num_threads(threads)


def _in_order(
    pool: ThreadPoolExecutor, compute: Callable[[Chunk], Rows], chunks: Iterable[Chunk], most: int
) -> Iterator[Rows]:
    """At most so many results are computed ahead: each is as large as its gradients."""
    pending: deque[Future[Rows]] = deque()
    for chunk in chunks:
        pending.append(pool.submit(compute, chunk))
        if len(pending) == most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
