"""Time of work on a processor or a graphics processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Clock:
    """How everything in one run is measured.

    Attributes:
        device: Where the work is done.
        repetitions: Of every measurement; the least counts, since other work of the machine only adds.
        processor_time: Count the time that the processor gave to this process, instead of the time that passed. For one
            thread on a machine that does other work.
    """

    device: str = "cpu"
    repetitions: int = 5
    processor_time: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the work is done on a graphics processor."""
        return torch.device(self.device).type == "cuda"

    def now(self) -> float:
        """Seconds since some moment, all work done."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        return time.process_time() if self.processor_time else time.perf_counter()

    def seconds(self, work: Callable[[], object]) -> float:
        """Least time of a call after one that is not counted."""
        work()
        times = []
        for _ in range(self.repetitions):
            began = self.now()
            work()
            times.append(self.now() - began)
        return min(times)
