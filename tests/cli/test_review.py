"""Class names are shown at a terminal, and somebody is asked, before they are public; without one, nobody says yes.

What cannot be undone is asked about at a terminal, and refused where nobody can be asked.
"""

import contextlib
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import Result

from cli.commands import commands
from cli.service import DATALENS, PATIENCE, RunningService, random_numbers_of
from cli.terminal import at_terminal
from datalens_service.base.errors import InvalidInput
from datalens_service.cli import review
from datalens_service.client import Client
from datalens_service.jobs.embedded_run import open_embedded_run
from datalens_service.store.datasets import datasets
from ports import free_port
from tests.data.builders import encoded, write_zip

Run = Callable[..., Result]
Json = Callable[..., Any]

SECRET = "kind-of-mark-"  # noqa: S105
QUESTION = "Publish these 3 class names and open the budget? [y/N]"
FAST = ("--method", "moments", "--synthetic-images", 20, "--no-evaluation")


@pytest.fixture
def scans(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Folders of persons, which read as class folders; other images for every test."""
    rng = random_numbers_of(request.node.nodeid)
    images = [encoded(Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))) for _ in range(60)]
    files = {f"train/{SECRET}{number % 3}/{number}.png": image for number, image in enumerate(images)}
    return write_zip(tmp_path / "scans.zip", {**files, f"val/{SECRET}0/unused.png": images[-1]})


def test_at_a_terminal_the_owner_sees_the_names_and_says_yes(service: RunningService, scans: Path) -> None:
    code, out, shown = at_terminal("y", "datasets", "upload", scans, "--epsilon", 4, "--json", *service.access)
    assert code == 0, shown
    assert QUESTION in shown
    assert all(f"{SECRET}{number}  20     0" in shown for number in range(3))
    assert "60 images" in shown
    assert "8×8×1" in shown
    assert "files ignored  1" in shown
    assert "public for good" in shown
    assert shown.count("Notice: ignored_split") == 1
    dataset = json.loads(out)
    assert (dataset["state"], dataset["review"]) == ("ready", None)
    assert dataset["privacy"]["epsilon_limit"] == 4


def test_no_keeps_the_upload_for_later(service: RunningService, scans: Path) -> None:
    code, out, shown = at_terminal("n", "datasets", "upload", scans, "--epsilon", 4, *service.access)
    assert (code, out) == (2, "")
    assert "Nothing was published or charged" in shown
    with Client(service.url, service.api_key) as client:
        newest = next(iter(client.datasets()))
    assert newest.state == "review"
    assert f"datalens datasets confirm {newest.id}" in shown
    code, out, shown = at_terminal("yes", "datasets", "confirm", newest.id, *service.access)
    assert (code, QUESTION in shown) == (0, True), shown
    assert "state       ready" in out


def test_without_a_terminal_nobody_says_yes(
    datalens: Run, datalens_json: Json, service: RunningService, scans: Path
) -> None:
    refused = datalens("datasets", "upload", scans, "--epsilon", 4, "--json", *service.access)
    assert refused.exit_code == 2
    error = json.loads(refused.stdout)["error"]
    assert (error["code"], error["title"]) == ("state-conflict", "The class names are not confirmed")
    assert [item["name"] for item in error["review"]["classes"]] == [f"{SECRET}{number}" for number in range(3)]
    assert SECRET not in error["detail"]
    waiting = error["dataset_id"]
    shown = datalens("datasets", "validation", waiting, *service.access).stdout
    assert "waits until" in shown
    assert SECRET not in datalens("datasets", "list", *service.access).stdout
    job = datalens("jobs", "submit", waiting, "--epsilon", 1, *FAST[:2], *service.access)
    assert (job.exit_code, "datalens datasets confirm" in job.stderr) == (2, True), job.stderr
    again = datalens("datasets", "confirm", waiting, *service.access)
    assert again.exit_code == 2
    opened = datalens_json("datasets", "confirm", waiting, "--confirm-classes", *service.access)
    assert opened["state"] == "ready"
    repeated = datalens_json("datasets", "confirm", waiting, *service.access)
    assert repeated["id"] == waiting


def test_a_known_budget_is_named_at_the_confirmation(
    datalens: Run, datalens_json: Json, service: RunningService, scans: Path
) -> None:
    upload = ("datasets", "upload", scans, "--epsilon")
    first = datalens_json(*upload, 2, "--delta", 1e-3, "--confirm-classes", *service.access)
    waiting = json.loads(datalens(*upload, 5, "--json", *service.access).stdout)["error"]["dataset_id"]
    confirm = ("datasets", "confirm", waiting, "--confirm-classes", *service.access)
    refused = datalens(*confirm)
    assert (refused.exit_code, "have a budget already" in refused.stderr) == (2, True)
    joined = datalens_json(*confirm, "--delta", 1e-3)
    assert joined["joined"]["dataset_ids"] == [first["id"]]


def test_names_on_the_command_line_are_confirmed(datalens_json: Json, service: RunningService, scans: Path) -> None:
    named = ("--class-names", "left,right,both")
    dataset = datalens_json("datasets", "upload", scans, "--epsilon", 4, *named, *service.access)
    assert dataset["schema"]["class_names"] == ["left", "right", "both"]


def test_training_here_asks_before_there_is_a_folder(datalens: Run, scans: Path, tmp_path: Path) -> None:
    command = ("train", "--data", scans, "--epsilon", 1, "--delta", 1e-3, "--out", tmp_path / "out", *FAST)
    refused = datalens(*command)
    assert refused.exit_code == 2
    assert f"{SECRET}1" in refused.stderr
    assert "--confirm-classes" in refused.stderr
    assert not (tmp_path / "out").exists()
    code, _, shown = at_terminal("n", *command)
    assert (code, QUESTION in shown, (tmp_path / "out").exists()) == (2, True, False)
    code, _, shown = at_terminal("y", *command)
    assert (code, QUESTION in shown, "Of little use" in shown) == (0, True, True), shown
    # The names of this folder are public by now.
    again = datalens(*command)
    assert again.exit_code == 0, again.output
    assert "public for good" not in again.stderr


def test_nobody_is_asked_where_stdin_is_closed() -> None:
    """Of cron, and of some containers."""
    command = [*DATALENS, *next(iter(ENDINGS)), *NOBODY]
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "add --yes" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_folder_without_a_budget_asks_again(datalens: Run, scans: Path, tmp_path: Path) -> None:
    """A first run was killed before it stored its records."""
    with open_embedded_run(tmp_path / "out"):
        pass
    command = ("train", "--data", scans, "--epsilon", 2, "--delta", 1e-3, "--out", tmp_path / "out", *FAST)
    assert datalens(*command).exit_code == 2
    with open_embedded_run(tmp_path / "out") as embedded_run:
        assert datasets.list_datasets(embedded_run.database).items == ()
    assert datalens(*command, "--class-names", "left,right,both").exit_code == 0
    assert SECRET not in (tmp_path / "out" / "card.json").read_text()


NOBODY = ("--url", f"http://127.0.0.1:{free_port()}")
ENDINGS = {
    ("datasets", "delete", "ds_1"): ("cannot be undone", NOBODY, 5),
    ("jobs", "cancel", "job_1"): ("stays spent", NOBODY, 5),
    ("releases", "revoke", "lnk_1"): ("cannot be undone", NOBODY, 5),
    ("keys", "revoke", "key_1"): ("cannot be undone", ("--data-dir", "nowhere"), 4),
}
"""What each says is lost, where it would go, and the exit code of having gone there."""
COUNT_FIRST = {"retention set", "tenants remove"}
"""What says what would go before it asks; tests/api/test_retention.py has a database for them."""
COSTS_NOTHING = "audits cancel"
CHOOSES_EPSILON = "jobs submit"
"""Asks about an ε that nobody named; tests/cli/test_releases.py answers."""


def test_what_ends_something_asks_unless_it_costs_nothing() -> None:
    ending = {name for name, _ in commands() if name.rpartition(" ")[2] in {"cancel", "delete", "remove", "revoke"}}
    ours = {" ".join(command[:2]) for command in ENDINGS} | COUNT_FIRST
    assert ending - {COSTS_NOTHING} == ours - {"retention set"}
    asking = {name for name, command in commands() if any("--yes" in one.opts for one in command.params)}
    assert asking == ours | {CHOOSES_EPSILON}


def test_a_name_is_asked_for_unless_it_was_said_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    review.confirm_name("lab", yes=True)
    with pytest.raises(InvalidInput, match=r"lab would be removed, and this cannot be undone\..* add --yes"):
        review.confirm_name("lab", yes=False)
    monkeypatch.setattr(review, "_is_terminal", lambda _stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("lab\ny\n"))
    review.confirm_name("lab", yes=False)
    with pytest.raises(InvalidInput, match="not its name"):
        review.confirm_name("lab", yes=False)
    assert capsys.readouterr().err.count("cannot be undone. Type its name to remove it: ") == 2


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
    assert not review.accept_low_utility(lambda: "Of little use.")
    monkeypatch.setattr(review, "_is_terminal", lambda _stream: True)
    assert not review.accept_low_utility(lambda: "")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
    with pytest.raises(InvalidInput) if refused else contextlib.nullcontext():
        assert review.accept_low_utility(lambda: "Of little use.")


def test_ctrl_c_at_the_question_is_130_and_does_nothing() -> None:
    command = next(iter(ENDINGS))
    code, stdout, shown = at_terminal("\x03", *command, *NOBODY, "--json")
    assert (code, stdout) == (130, "")
    assert "Traceback" not in shown
