"""Whatever the machine refuses is one sentence and the right exit code; with --json, one object on stdout."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import Result

from cli.commands import commands
from cli.service import DATALENS, PATIENCE
from deployments.fork_servers import warm_environment
from disks import small_disk
from other_programs import do_without
from ports import free_port

Run = Callable[..., Result]
NOBODY = ("--url", f"http://127.0.0.1:{free_port()}")
TRAIN = ("--epsilon", "1", "--method", "moments", "--synthetic-images", "10", "--no-evaluation")
PLAN = ("plan", "--top-k", "200", "--noise-stddev", "5000", "--epsilon", "1", "--delta", "1e-5")

PLACES: dict[tuple[str, str], tuple[str, ...]] = {
    ("serve", "--data-dir"): ("serve", "--port", str(free_port()), "--data-dir", "@"),
    ("demo", "--out"): ("demo", "--out", "@"),
    ("train", "--data"): ("train", "--data", "@", "--confirm-classes", *TRAIN, "--out", "new"),
    ("train", "--out"): ("train", "--data", "records.npz", "--confirm-classes", *TRAIN, "--out", "@"),
    ("train", "--public-data"): (
        *("train", "--data", "records.npz", "--confirm-classes", *TRAIN, "--out", "new", "--public-data", "@"),
    ),
    ("plan", "--data"): ("plan", "--epsilon", "1", "--data", "@"),
    ("plan", "--public-data"): ("plan", "--epsilon", "1", "--data", "records.npz", "--public-data", "@"),
    ("encoders make", "--weights"): ("encoders", "make", "mine", "--license", "ours", "--weights", "@"),
    ("encoders make", "--out"): (
        *("encoders", "make", "mine", "--license", "ours", "--weights", "records.npz", "--out", "@"),
    ),
    ("predict", "images"): ("predict", "job_1", "@", *NOBODY),
    ("individual-epsilon", "image"): ("individual-epsilon", "job_1", "@", "--label", "0", *NOBODY),
    ("prepare", "source"): ("prepare", "@", "--size", "8", "--out", "new.npz"),
    ("prepare", "--out"): ("prepare", "images", "--size", "8", "--out", "@"),
    ("audit", "--data"): ("audit", "--epsilon", "1", "--data", "@"),
    ("audit", "--picture"): ("audit", "--epsilon", "1", "--data", "file", "--attack", "inversion", "--picture", "@"),
    ("verify", "proof"): ("verify", "@"),
    ("verify", "--release"): ("verify", "images/a/1.png", "--release", "@"),
    ("verify", "--authority"): ("verify", "images/a/1.png", "--authority", "@"),
    ("jobs evidence", "--out"): ("jobs", "evidence", "job_1", "--out", "@", *NOBODY),
    ("jobs registry", "--out"): ("jobs", "registry", "job_1", "--out", "@", *NOBODY),
    ("jobs download", "--out"): ("jobs", "download", "job_1", "--out", "@", *NOBODY),
    ("jobs report", "--out"): ("jobs", "report", "job_1", "--out", "@", *NOBODY),
    ("jobs push", "--folder"): ("jobs", "push", "job_1", "--folder", "@", *NOBODY),
    ("audits picture", "--out"): ("audits", "picture", "aud_1", "--out", "@", *NOBODY),
    ("datasets upload", "path"): ("datasets", "upload", "@", "--epsilon", "1", *NOBODY),
    ("datasets preview", "--out"): ("datasets", "preview", "ds_1", "--out", "@", *NOBODY),
    ("keys create", "--data-dir"): ("keys", "create", "--name", "x", "--data-dir", "@"),
    ("keys list", "--data-dir"): ("keys", "list", "--data-dir", "@"),
    ("keys revoke", "--data-dir"): ("keys", "revoke", "key_1", "--yes", "--data-dir", "@"),
    ("tenants create", "--data-dir"): ("tenants", "create", "x", "--data-dir", "@"),
    ("tenants list", "--data-dir"): ("tenants", "list", "--data-dir", "@"),
    ("tenants quotas", "--data-dir"): ("tenants", "quotas", "tn_x", "--data-dir", "@"),
    ("tenants export", "--data-dir"): ("tenants", "export", "tn_x", "--out", "new.tar", "--data-dir", "@"),
    ("tenants export", "--out"): ("tenants", "export", "default", "--out", "@"),
    ("tenants remove", "--data-dir"): ("tenants", "remove", "tn_x", "--yes", "--data-dir", "@"),
    ("tenants remove", "--out"): ("tenants", "remove", "tn_x", "--yes", "--out", "@"),
    ("retention show", "--data-dir"): ("retention", "show", "--data-dir", "@"),
    ("retention set", "--data-dir"): ("retention", "set", "--yes", "--data-dir", "@"),
    ("retention preview", "--data-dir"): ("retention", "preview", "--data-dir", "@"),
    ("journal verify", "--data-dir"): ("journal", "verify", "--data-dir", "@"),
    # Not declared as paths, because each may be something else as well.
    ("predict", "model"): ("predict", "@.safetensors", "records.npz"),
    ("individual-epsilon", "job"): ("individual-epsilon", "@.safetensors", "images/a/1.png", "--label", "0"),
    ("verify", "--key"): ("verify", "records.npz", "--key", "@"),
    ("jobs download", "job"): ("jobs", "download", "@", *NOBODY),
}
"""A request for each option and argument with a path, `@`. Nobody answers those to a service."""

FAULTS = ["file", "dangling", "loop", "file/x", "n" * 300, "/proc/x"]
"""A file where a folder is wanted, links that lead nowhere, names that no file has, folders that nobody can write."""


@pytest.fixture
def folder(datalens: Run, tmp_path: Path) -> Path:
    """Records, images and the things that FAULTS names."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "records.npz", train_images=images, train_labels=np.arange(80) % 2)
    for number, name in enumerate(("a/1.png", "b/2.png")):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        Image.fromarray(images[number]).save(tmp_path / "images" / name)
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder" / "kept").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def error_of(stdout: str) -> dict[str, Any]:
    """The problem in the one object on stdout."""
    said = json.loads(stdout)
    assert said.keys() == {"error"}
    assert {"code", "title", "detail"} <= said["error"].keys()
    assert "None" not in said["error"]["detail"]
    problem: dict[str, Any] = said["error"]
    return problem


def start(arguments: tuple[str, ...], folder: Path, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run the program itself, as a fork unless it is given variables."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
    options = pipes | {"env": os.environ | warm_environment()} | streams
    ended = subprocess.run([*DATALENS, *arguments], cwd=folder, timeout=PATIENCE, check=False, **options)
    assert "Traceback" not in (ended.stderr or "")
    assert "Exception ignored" not in (ended.stderr or "")
    return ended


def test_every_path_is_tried_here() -> None:
    declared = {
        (name, parameter.opts[0])
        for name, command in commands()
        for parameter in command.params
        if parameter.type_descriptor.annotation is Path
    }
    assert declared - PLACES.keys() == set()


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
def test_a_path_that_cannot_be_used_is_one_sentence(datalens: Run, folder: Path, place: tuple[str, str]) -> None:
    before = {*folder.rglob("*")}
    for fault in FAULTS:
        result = datalens(*(part.replace("@", fault) for part in PLACES[place]), "--json")
        assert isinstance(result.exception, SystemExit), (fault, result.exception)
        assert result.exit_code in (2, 4, 5), fault
        problem = error_of(result.stdout)
        assert result.stderr.splitlines()[-1].startswith(f"{problem['title']}."), fault
        made = {*folder.rglob("*")} - before
        assert [path for path in made if path.name.startswith(".")] == [], f"{fault}: nothing half-written is left"


def test_a_folder_where_a_file_is_wanted_is_one_sentence(datalens: Run, folder: Path) -> None:
    (folder / "folder.safetensors").mkdir()
    # An archive of a release may be a folder.
    for place in PLACES.keys() - {("serve", "--data-dir"), ("verify", "--release")}:
        result = datalens(*(part.replace("@", "folder") for part in PLACES[place]), "--json")
        assert isinstance(result.exception, SystemExit | None), (place, result.exception)
        if result.exit_code != 0:
            assert result.exit_code in (2, 4, 5), place
            error_of(result.stdout)


@pytest.mark.parametrize(
    ("name", "content"), [("datasets", b""), ("datalens.db", b"no database" * 100), ("datalens.db", None)], ids=str
)
def test_a_service_that_cannot_start_says_why(tmp_path: Path, name: str, content: bytes | None) -> None:
    (tmp_path / "data").mkdir()
    if content is None:
        (tmp_path / "data" / name / "x").mkdir(parents=True)
    else:
        (tmp_path / "data" / name).write_bytes(content)
    ended = start(("serve", "--port", str(free_port()), "--data-dir", "data", "--json"), tmp_path)
    assert ended.returncode == (2 if name == "datasets" else 5), ended.stderr
    assert error_of(ended.stdout)["code"] == ("file" if name == "datasets" else "store-unavailable")


@pytest.mark.parametrize(
    "arguments",
    [
        ("prepare", "images", "--size", "8", "--out", "disk/o.npz"),
        ("train", "--data", "records.npz", "--confirm-classes", *TRAIN, "--out", "disk/out"),
        ("serve", "--port", str(free_port()), "--data-dir", "disk/data"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_is_5_and_leaves_nothing_half(datalens: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "disk").mkdir()
    with small_disk(folder / "disk") as disk:
        if not disk.real:
            do_without("nothing can be mounted here")
        with disk.full():
            ended = datalens(*arguments, "--json")
            assert list((folder / "disk").glob("*.npz")) == []
    assert ended.exit_code == 5, ended.stderr
    assert error_of(ended.stdout)["code"] == "insufficient-storage"


SAYING = [("--help",), ("version", "--json"), ("version",)]
"""Commands that print something, each in another way."""
FAILING = [("verify", "missing"), ("jobs", "list", *NOBODY, "--json")]


@pytest.mark.parametrize("arguments", SAYING, ids=" ".join)
def test_a_full_stdout_is_5_and_one_that_nobody_reads_is_141(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = start(arguments, tmp_path, stdout=full)
    assert (ended.returncode, ended.stderr.count("\n")) == (5, 1), ended.stderr
    reading, writing = os.pipe()
    os.close(reading)
    ended = start(arguments, tmp_path, stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("arguments", FAILING, ids=lambda arguments: arguments[0] + arguments[-1])
def test_what_went_wrong_keeps_its_exit_code_if_nobody_can_be_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code = 2 if arguments[0] == "verify" else 5
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("w") as full:
        for stream in ({"stderr": full}, {"stderr": writing}, {"stdout": full}, {"stdout": writing}):
            ended = start(arguments, tmp_path, **stream)
            assert ended.returncode == code, ended.stderr
            if "--json" in arguments and "stderr" in stream:
                error_of(ended.stdout)
    os.close(writing)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(tmp_path: Path, closed: str) -> None:
    command = ["bash", "-c", f'"$@" {closed}', "bash", *DATALENS, "verify", "missing", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    if ">&-" not in closed.split():
        error_of(ended.stdout)


@pytest.mark.parametrize(
    "terminal",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=lambda terminal: next(iter(terminal.values())),
)
def test_what_a_terminal_cannot_show_is_replaced_and_json_loses_nothing(
    tmp_path: Path, terminal: dict[str, str]
) -> None:
    environment = {**os.environ, **terminal}
    if "LC_ALL" in terminal:
        plan = start(PLAN, tmp_path, env=environment)
        assert (plan.returncode, plan.stderr) == (0, "")
        assert "? planned" in plan.stdout
    name, encoding = "μä\udcff", terminal.get("PYTHONIOENCODING", "ascii")
    ended = start(("keys", "list", "--data-dir", name, "--json"), tmp_path, env=environment, encoding=encoding)
    assert ended.returncode == 4
    # In the locale C, arguments are not read as UTF-8 either.
    shown = name if "LC_ALL" not in terminal else os.fsencode(name).decode("ascii", "surrogateescape")
    assert f"There is no database in {shown}:" in error_of(ended.stdout)["detail"]


@pytest.mark.parametrize("key", ["é", "\udcff"])
def test_a_key_that_no_header_can_hold_is_not_repeated(datalens: Run, key: str) -> None:
    result = datalens("jobs", "list", *NOBODY, "--api-key", key, "--json")
    assert result.exit_code == 2
    assert key not in result.stdout
    assert error_of(result.stdout)["code"] == "usage"
