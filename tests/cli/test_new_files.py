"""No command writes over a file that is there, unless --force was given; none leaves half of one."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image
from typer.testing import Result

from cli.commands import commands
from cli.service import RunningService
from datalens_service.cli.new_file import new_file
from datalens_service.client import ClientError
from ports import free_port

Run = Callable[..., Result]
MINE = b"mine"
FOLDERS = {("train", "--out"), ("demo", "--out"), ("jobs push", "--folder")}
"""Each refuses a folder with files of others in it, and has its own tests."""


class Writer(NamedTuple):
    """An option that names a file to write."""

    command: str
    option: str


def writers() -> set[Writer]:
    """Options with a path that need not exist: what is read has to, and --data-dir is the service's own folder."""
    return {
        Writer(name, parameter.opts[0])
        for name, command in commands()
        for parameter in command.params
        if parameter.type_descriptor.annotation is Path
        and not parameter.type_descriptor.parameter_info.exists
        and parameter.opts[0] != "--data-dir"
    }


REQUESTS: dict[Writer, tuple[str, ...]] = {
    Writer("prepare", "--out"): ("prepare", "images", "--size", "8"),
    Writer("encoders make", "--out"): ("encoders", "make", "mine", "--weights", "records.npz", "--license", "ours"),
    Writer("audit", "--picture"): ("audit", "--data", "records.npz", "--epsilon", "1", "--attack", "inversion"),
    Writer("audits picture", "--out"): ("audits", "picture", "aud_1"),
    Writer("datasets preview", "--out"): ("datasets", "preview", "ds_1"),
    Writer("jobs report", "--out"): ("jobs", "report", "job_1"),
    Writer("jobs download", "--out"): ("jobs", "download", "job_1"),
    Writer("jobs evidence", "--out"): ("jobs", "evidence", "job_1"),
    Writer("jobs registry", "--out"): ("jobs", "registry", "job_1"),
    Writer("tenants export", "--out"): ("tenants", "export", "default"),
    Writer("tenants remove", "--out"): ("tenants", "remove", "default", "--yes"),
}
"""Nobody answers these: a name that is taken is refused before anybody is asked."""

DEFAULTS = {
    ("encoders", "make", "mine", "--weights", "records.npz", "--license", "ours"): "mine.onnx",
    ("audits", "picture", "aud_1"): "inversion-private.png",
    ("datasets", "preview", "ds_1"): "preview-private.png",
    ("jobs", "report", "job_1"): "job_1-report.html",
    ("jobs", "report", "job_1", "--releasable"): "job_1-report.html",
    ("jobs", "download", "job_1"): "job_1.npz",
    ("jobs", "download", "job_1", "--format", "parquet"): "job_1.parquet",
    ("jobs", "download", "job_1", "--bundle"): "job_1-npz.zip",
    ("jobs", "download", "job_1", "--format", "onnx"): "job_1-classifier.onnx",
    ("jobs", "download", "job_1", "--format", "safetensors", "--bundle"): "job_1-classifier.zip",
    ("jobs", "download", "job_1", "--file", "card.json"): "job_1-card.json",
    ("jobs", "evidence", "job_1"): "job_1-evidence.html",
    ("jobs", "registry", "job_1"): "job_1-registry.yaml",
}


@pytest.fixture
def folder(datalens: Run, tmp_path: Path) -> Path:
    """Images of two classes, and a file that only looks like records."""
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "images" / name)
    (tmp_path / "records.npz").write_bytes(b"")
    return tmp_path


def service_options(command: str) -> tuple[str, ...]:
    group = command.partition(" ")[0]
    return ("--url", f"http://127.0.0.1:{free_port()}") if group in ("audits", "datasets", "jobs") else ()


def assert_refused(result: Result, name: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{name} exists: name another file, or replace it with --force." in result.stderr


def test_every_option_that_names_a_file_to_write_is_tried_here() -> None:
    assert writers() == {Writer(*folder) for folder in FOLDERS} | REQUESTS.keys()


@pytest.mark.parametrize("link", [False, True], ids=["file", "dangling link"])
@pytest.mark.parametrize("writer", REQUESTS, ids=str)
def test_a_name_that_is_taken_is_refused(datalens: Run, folder: Path, writer: Writer, link: bool) -> None:
    taken = folder / "taken"
    taken.symlink_to("nowhere") if link else taken.write_bytes(MINE)
    before = sorted(folder.rglob("*"))
    result = datalens(*REQUESTS[writer], writer.option, "taken", *service_options(writer.command))
    assert_refused(result, "taken")
    assert sorted(folder.rglob("*")) == before
    assert taken.is_symlink() if link else taken.read_bytes() == MINE


@pytest.mark.parametrize("request_", DEFAULTS, ids=" ".join)
def test_a_name_that_nobody_chose_is_refused_as_well(datalens: Run, folder: Path, request_: tuple[str, ...]) -> None:
    name = DEFAULTS[request_]
    (folder / name).write_bytes(MINE)
    assert_refused(datalens(*request_, *service_options(request_[0])), name)
    assert (folder / name).read_bytes() == MINE


@pytest.mark.parametrize(
    ("request_", "option"),
    [
        (("jobs", "download", "job_1", "--file", "card.json", "--format", "npz"), "--format"),
        (("jobs", "download", "job_1", "--file", "card.json", "--n", "3"), "--synthetic-images"),
        (("jobs", "download", "job_1", "--file", "card.json", "--bundle"), "--bundle"),
        (("jobs", "download", "job_1", "--license", "CC0-1.0"), "--license"),
        (("jobs", "download", "job_1", "--format", "onnx", "--license", "CC0-1.0"), "--license"),
        (("audits", "submit", "ds_1", "--unprotected", "--method", "moments"), "--method"),
        (("audits", "submit", "--job", "job_1", "--set", "top_k=3"), "--set"),
    ],
    ids=" ".join,
)
def test_an_option_that_would_change_nothing_is_refused(
    datalens: Run, folder: Path, request_: tuple[str, ...], option: str
) -> None:
    result = datalens(*request_, *service_options(request_[0]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} has no effect" in result.stderr or f"{option} belongs to" in result.stderr


@pytest.mark.parametrize("writer", REQUESTS, ids=str)
def test_even_force_writes_over_nothing_but_files(datalens: Run, folder: Path, writer: Writer) -> None:
    (folder / "taken").mkdir()
    os.mkfifo(folder / "pipe")
    for name in ("taken", "pipe"):
        options = (writer.option, name, "--force", *service_options(writer.command))
        result = datalens(*REQUESTS[writer], *options)
        assert result.exit_code == 2, result.output
        assert name in result.stderr
    assert (folder / "taken").is_dir()
    assert (folder / "pipe").is_fifo()


def test_force_replaces_a_file_by_a_whole_one(datalens: Run, service: RunningService, folder: Path, npz: Path) -> None:
    (folder / "preview.png").write_bytes(MINE)
    upload = ("datasets", "upload", npz, "--epsilon", 4, "--confirm-classes", "--json", *service.access)
    uploaded = json.loads(datalens(*upload).stdout)["id"]
    preview = ("datasets", "preview", uploaded, "--out", "preview.png", *service.access)
    assert_refused(datalens(*preview), "preview.png")
    assert datalens(*preview, "--force").exit_code == 0
    assert (folder / "preview.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "preview.png").stat().st_mode & 0o777 == 0o600


def write(path: Path, content: bytes, *, force: bool = False, meanwhile: Callable[[], object] = lambda: None) -> None:
    with new_file(path, force=force) as new:
        new.write_bytes(content)
        assert new.parent.stat().st_mode & 0o077 == 0, "closed to others while it is written"
        meanwhile()


def fill_disk() -> None:
    raise OSError(errno.ENOSPC, "full")


def test_what_fails_leaves_nothing_behind_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(MINE)
    for name in ("old", "new"):
        with pytest.raises(OSError, match=name) as caught:
            write(tmp_path / name, b"half", force=True, meanwhile=fill_disk)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / name))
    assert [one.name for one in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == MINE


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_came_in_the_meantime_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", refuse_link)
    with pytest.raises(ClientError, match="exists"):
        write(tmp_path / "x", b"ours", meanwhile=lambda: (tmp_path / "x").write_bytes(MINE))
    assert (tmp_path / "x").read_bytes() == MINE
    write(tmp_path / "y", b"ours")
    assert (tmp_path / "y").read_bytes() == b"ours"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x", "y"]


def refuse_link(*_: object) -> None:
    raise PermissionError(errno.EPERM, "no links here")
