"""What cannot be brought back is asked about at a terminal, and refused where nobody can be asked."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from cli.commands import commands
from cli.service import RunningService
from cli.terminal import at_terminal
from datalens_service.cli import confirmation
from datalens_service.errors import InvalidInput
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


@pytest.mark.usefixtures("datalens")
@pytest.mark.parametrize(
    ("command", "answer", "goes"),
    [
        *((command, "n", False) for command in ENDINGS),
        *((next(iter(ENDINGS)), answer, goes) for answer, goes in (("YES", True), ("", False), ("\x04", False))),
    ],
    ids=lambda part: ascii(part) if isinstance(part, str) else "",
)
def test_at_a_terminal_the_answer_decides(command: tuple[str, ...], answer: str, goes: bool) -> None:
    lost, place, gone = ENDINGS[command]
    code, stdout, shown = at_terminal(answer, *command, *place, "--json")
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


def test_ctrl_c_at_the_question_is_130_and_does_nothing() -> None:
    command = next(iter(ENDINGS))
    code, stdout, shown = at_terminal("\x03", *command, *NOBODY, "--json")
    assert (code, stdout) == (130, "")
    assert "Traceback" not in shown


def test_a_dataset_is_deleted_by_yes_alone(datalens: Run, service: RunningService, npz: Path) -> None:
    confirmed = ("--confirm-classes", *service.access)
    uploaded = json.loads(datalens("datasets", "upload", npz, "--epsilon", 4, *confirmed, "--json").stdout)["id"]
    assert datalens("datasets", "delete", uploaded, *service.access).exit_code == 2
    assert json.loads(datalens("datasets", "show", uploaded, *service.access, "--json").stdout)["state"] == "ready"
    assert datalens("datasets", "delete", uploaded, "--yes", *service.access).exit_code == 0
    assert json.loads(datalens("datasets", "show", uploaded, *service.access, "--json").stdout)["state"] == "deleted"
