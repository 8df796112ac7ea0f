"""deploy/systemd: systemd takes the units, they leave a service no more rights than it uses, and fit the code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from celery.bin.worker import worker

from datalens_service.base.settings import Settings, secret_settings
from datalens_service.cli.commands.serve import STOP_SECONDS
from datalens_service.workers.process.supervise_job import GRACE_SECONDS
from other_programs import find_program
from repository import ROOT

FOLDER = ROOT / "deploy" / "systemd"
WORKER = "datalens-worker@.service"
UNITS = ("datalens.service", WORKER)
DROP_IN = "datalens.service.d/postgresql.conf"
PREFIX = "DATALENS_"
CLOSING_SECONDS = 5
EXPOSURE = 20
"""Most that `systemd-analyze security` may find, in tenths: 100 is a service without any protection."""


def read(*names: str) -> list[tuple[str, str]]:
    """The lines of [Service]."""
    text = "\n".join((FOLDER / name).read_text().partition("[Service]")[2].partition("\n[")[0] for name in names)
    return [(key, value) for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)]


def value(name: str, key: str) -> str:
    """The only one of that key."""
    [found] = [one for known, one in read(name) if known == key]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Units as they are installed, with programs that are there, and an instance of the worker."""
    for path in (path for path in FOLDER.rglob("*") if path.is_file()):
        copy = tmp_path / path.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text().replace("/opt/datalens/bin", str(Path(sys.executable).parent)))
    shutil.copy(tmp_path / WORKER, tmp_path / "datalens-worker@gpu.service")
    return tmp_path


@pytest.mark.parametrize("unit", ["datalens.service", "datalens-worker@gpu.service"])
@pytest.mark.parametrize("with_postgresql", [False, True])
def test_systemd_takes_the_units(folder: Path, unit: str, with_postgresql: bool) -> None:
    if not with_postgresql:
        (folder / DROP_IN).unlink()
    done = subprocess.run(
        [find_program("systemd-analyze"), "verify", "--man=no", str(folder / unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_would_complain(folder: Path) -> None:
    unit = folder / "datalens.service"
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=very"))
    done = subprocess.run(
        [find_program("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert "very" in done.stderr


@pytest.mark.parametrize("unit", ["datalens.service", "datalens-worker@gpu.service"])
def test_a_service_has_few_rights(folder: Path, unit: str) -> None:
    analyze = [find_program("systemd-analyze"), "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE}"]
    done = subprocess.run([*analyze, str(folder / unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_units_are_equally_hardened() -> None:
    ours = {"ExecStart", "Environment", "LoadCredential"}
    lines = [[line for line in read(unit) if line[0] not in ours] for unit in UNITS]
    assert lines[0] == lines[1]


def test_whatever_reads_uploads_may_confine_itself() -> None:
    """systemd 252 has these calls in no group that a service is given."""
    allowed = {name for key, names in read("datalens.service") if key == "SystemCallFilter" for name in names.split()}
    assert {"@system-service", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} < allowed
    assert "MemoryDenyWriteExecute" not in dict(read("datalens.service"))


def test_a_stop_is_longer_than_jobs_and_requests_may_take() -> None:
    drain = Settings.model_fields["drain_seconds"].default + CLOSING_SECONDS
    for unit in UNITS:
        assert value(unit, "KillMode") == "mixed"
        assert int(value(unit, "TimeoutStopSec")) > max(GRACE_SECONDS, drain, STOP_SECONDS)


@pytest.mark.parametrize("names", [["datalens.service", DROP_IN], [WORKER]])
def test_variables_are_settings_and_secrets_are_credentials(names: list[str]) -> None:
    lines = read(*names)
    written = [each for key, line in lines if key == "Environment" for each in line.split()]
    variables = dict(each.split("=", 1) for each in written)
    assert len(written) == len(variables)
    secrets = {f"{PREFIX}{name.upper()}" for name in secret_settings()}
    files = {name: path for name, path in variables.items() if name.removesuffix("_FILE") in secrets}
    credentials = dict(line.split(":") for key, line in lines if key == "LoadCredential")
    assert files == {f"{PREFIX}{name.upper().replace('-', '_')}_FILE": f"%d/{name}" for name in credentials}
    assert all(path == f"/etc/datalens/{name}" for name, path in credentials.items())
    assert set(credentials) == {"database-url", "broker-url"}
    rest = {
        name.removeprefix(PREFIX).lower(): one.replace("%i", "gpu")
        for name, one in variables.items()
        if name not in files
    }
    settings = Settings(**rest, broker_url="redis://localhost:6379/0")
    assert settings.executor == "celery"
    state = f"/var/lib/{value(names[0], 'StateDirectory')}"
    assert all(str(path).startswith(f"{state}/") for path in (settings.data_dir, settings.ledger_log))


def test_commands_are_ones_that_there_are() -> None:
    program, subcommand = value("datalens.service", "ExecStart").split()
    assert Path(program).name == "datalens"
    assert (Path(sys.executable).parent / "datalens").exists()
    assert subcommand == "serve"
    program, *named, command = value(WORKER, "ExecStart").split()[:4]
    assert (Path(program).name, named, command) == ("celery", ["-A", "datalens_service.workers.app"], worker.name)
    options = value(WORKER, "ExecStart").split()[4:]
    found, rest, _ = worker.make_parser(click.Context(worker)).parse_args(options)
    assert (rest, found["concurrency"]) == ([], "1")


def test_the_page_installs_every_file() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    files = {str(path.relative_to(ROOT)) for path in FOLDER.rglob("*") if path.is_file()}
    assert {name for name in files if name not in page} == set()
