"""What cannot be brought back is asked about at a terminal, and refused where nobody can be asked."""

import contextlib
import fcntl
import io
import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from cli.commands import commands
from cli.service import DATALENS, PATIENCE, RunningService
from datalens_service.cli import confirmation
from datalens_service.errors import InvalidInput
from deployments.fork_servers import warm_environment
from ports import free_port

Run = Callable[..., Result]
NOBODY = ("--url", f"http://127.0.0.1:{free_port()}")
ENDINGS = {
    ("datasets", "delete", "ds_1"): ("cannot be brought back", NOBODY, 5),
    ("jobs", "cancel", "job_1"): ("stays spent", NOBODY, 5),
    ("keys", "revoke", "key_1"): ("cannot be brought back", ("--data-dir", "nowhere"), 4),
}
"""What each says is lost, where it would go, and the exit code of having gone there."""


def test_what_ends_something_asks_unless_it_costs_nothing() -> None:
    ending = {name for name, _ in commands() if name.rpartition(" ")[2] in {"cancel", "delete", "remove", "revoke"}}
    assert ending == {" ".join(command[:2]) for command in ENDINGS} | {"audits cancel"}
    asking = {name for name, command in commands() if any("--yes" in one.opts for one in command.params)}
    assert asking == ending - {"audits cancel"}


@pytest.mark.parametrize("command", ENDINGS, ids=" ".join)
def test_without_a_terminal_nothing_is_done(datalens: Run, command: tuple[str, ...]) -> None:
    lost, place, gone = ENDINGS[command]
    refused = datalens(*command, *place, "--json")
    assert refused.exit_code == 2
    error = json.loads(refused.stdout)["error"]
    assert lost in error["detail"]
    assert "add --yes" in error["detail"]
    assert datalens(*command, *place, "--yes").exit_code == gone


@pytest.mark.parametrize(
    ("command", "answer", "goes"),
    [
        *((command, "n", False) for command in ENDINGS),
        *((next(iter(ENDINGS)), answer, goes) for answer, goes in (("YES", True), ("", False), ("\x04", False))),
    ],
    ids=lambda part: ascii(part) if isinstance(part, str) else "",
)
def test_at_a_terminal_the_answer_decides(tmp_path: Path, command: tuple[str, ...], answer: str, goes: bool) -> None:
    lost, place, gone = ENDINGS[command]
    code, stdout, shown = at_terminal([*DATALENS, *command, *place, "--json"], answer, tmp_path)
    assert "[y/N]" in shown
    assert lost in shown
    assert code == (gone if goes else 2), shown
    assert ("so nothing was done" in json.loads(stdout)["error"]["detail"]) is not goes


@pytest.mark.parametrize(("typed", "refused"), [("n", True), ("", True), ("y", False)])
def test_what_is_of_little_use_is_asked_about_at_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, typed: str, refused: bool
) -> None:
    assert not confirmation.accept_low_utility(lambda: "Of little use.")
    monkeypatch.setattr(confirmation, "_is_terminal", lambda _stream: True)
    assert not confirmation.accept_low_utility(lambda: "")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
    with pytest.raises(InvalidInput) if refused else contextlib.nullcontext():
        assert confirmation.accept_low_utility(lambda: "Of little use.")


def test_ctrl_c_at_the_question_is_130_and_does_nothing(tmp_path: Path) -> None:
    command = next(iter(ENDINGS))
    code, stdout, shown = at_terminal([*DATALENS, *command, *NOBODY, "--json"], "\x03", tmp_path)
    assert (code, stdout) == (130, "")
    assert "Traceback" not in shown


def test_a_dataset_is_deleted_by_yes_alone(datalens: Run, service: RunningService, npz: Path) -> None:
    confirmed = ("--confirm-classes", *service.access)
    uploaded = json.loads(datalens("datasets", "upload", npz, "--epsilon", 4, *confirmed, "--json").stdout)["id"]
    assert datalens("datasets", "delete", uploaded, *service.access).exit_code == 2
    assert json.loads(datalens("datasets", "show", uploaded, *service.access, "--json").stdout)["state"] == "ready"
    assert datalens("datasets", "delete", uploaded, "--yes", *service.access).exit_code == 0
    assert json.loads(datalens("datasets", "show", uploaded, *service.access, "--json").stdout)["state"] == "deleted"


def at_terminal(command: list[str], answer: str, folder: Path) -> tuple[int, str, str]:
    """Run a command whose stdin and stderr are a terminal: exit code, stdout, and what the terminal showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | warm_environment(),
        # Ctrl-C reaches the group whose terminal it is.
        start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:
        try:
            os.close(theirs)
            shown = _read_until(ours, "[y/N] ")
            os.write(ours, f"{answer}\n".encode() if answer.isprintable() else answer.encode())
            assert process.stdout is not None
            stdout = process.stdout.read().decode()
            code = process.wait(PATIENCE)
        finally:
            process.kill()
    shown += _read_until(ours, None)
    os.close(ours)
    return code, stdout, shown


def _take_terminal() -> None:
    """The standard input becomes the terminal that controls the new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell that runs tests in the background lets its processes ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _read_until(terminal: int, end: str | None) -> str:
    """What a terminal shows, up to a text or until nobody writes to it any more."""
    shown = ""
    while end is None or end not in shown:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block.decode()
    return shown
