"""Progress bars on stderr: one per phase of a job, with the ε it has spent; one for an upload."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from datalens_service.cli.output import say


class PhaseBars:
    """Shows (phase, value, maximum) as it comes; a phase that ends keeps its full bar."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def observe(self, phase: str, value: int, maximum: int, epsilon: float | None = None) -> None:
        """Show the progress of a phase, and the ε spent so far."""
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=maximum, spent="")
        spent = "" if epsilon is None else f"ε {epsilon}"
        self._progress.update(self._tasks[phase], completed=value, total=maximum, spent=spent)

    def note(self, text: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


class UploadBar:
    """Shows how far an upload is; if it is interrupted for good, says how to go on."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._upload = ""
        self._complete = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
        if error is not None and self._upload and not self._complete:
            say(f"To go on where it stopped, repeat the command with --resume {self._upload}")

    def observe(self, upload: str, value: int, maximum: int) -> None:
        """Show how many bytes are stored."""
        if not self._upload:
            self._progress.add_task("upload", total=maximum)
        self._upload, self._complete = upload, value == maximum
        self._progress.update(self._progress.task_ids[0], completed=value)
