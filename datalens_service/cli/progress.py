"""A progress bar per phase, on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class PhaseBars:
    """Shows (phase, value, maximum) as it comes; a phase that ends keeps its full bar."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def observe(self, phase: str, value: int, maximum: int) -> None:
        """Draw how far a phase is."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=maximum)
        self._progress.update(self._tasks[phase], completed=value, total=maximum)
