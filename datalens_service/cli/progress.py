"""Progress bars on stderr: one per phase of a job, with the ε it has spent; one for an upload."""

from types import TracebackType

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


class PhaseBars(Progress):
    """Shows (phase, value, maximum) as it comes; a phase that ends keeps its bar, unless there was nothing to do."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}"),
        )
        super().__init__(*columns, console=Console(stderr=True))
        self._phases: dict[str, TaskID] = {}

    def observe(self, phase: str, value: int, maximum: int, epsilon: float | None = None) -> None:
        """Show the progress of a phase, and the ε spent so far."""
        if phase not in self._phases:
            for task in self.tasks:
                if not task.finished:
                    self.stop_task(task.id)
                    self.update(task.id, visible=task.completed > 0)
            self._phases[phase] = self.add_task(phase, total=maximum, spent="")
        spent = "" if epsilon is None else f"ε {epsilon}"
        self.update(self._phases[phase], completed=value, total=maximum, spent=spent)

    def note(self, text: str) -> None:
        """Write a line above the bars."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class UploadBar(Progress):
    """Shows how far an upload is; if it is interrupted for good, says how to go on."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        super().__init__(*columns, console=Console(stderr=True))
        self._upload = ""
        self._complete = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if error is not None and self._upload and not self._complete:
            say(f"To go on where it stopped, repeat the command with --resume {self._upload}")

    def observe(self, upload: str, value: int, maximum: int) -> None:
        """Show how many bytes are stored."""
        if not self._upload:
            self.add_task("upload", total=maximum)
        self._upload, self._complete = upload, value == maximum
        self.update(self.task_ids[0], completed=value)
