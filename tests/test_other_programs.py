"""A test that lacks a program of another project is skipped, or fails where services are required."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import other_programs
from deployments.pgbouncer import PgBouncer
from deployments.postgresql import Cluster
from deployments.redis import Redis
from deployments.reverse_proxy import ReverseProxy
from other_programs import do_without, find_program

STARTS: dict[str, Callable[[Path], object]] = {
    "redis-server": lambda folder: Redis(folder, "secret"),
    "initdb": Cluster,
    "pgbouncer": lambda folder: PgBouncer(folder, {}),
    "nginx": lambda folder: ReverseProxy("nginx", folder, 1),
    "caddy": lambda folder: ReverseProxy("caddy", folder, 1),
}


@pytest.fixture
def bare_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of another project is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(other_programs, "_ELSEWHERE", ())


@pytest.mark.parametrize("required", [False, True])
def test_what_is_lacking_skips_a_test_or_fails_it(required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_REQUIRE_SERVICES", "1" if required else "")
    ends = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(ends, match="no server" + ", and DATALENS_REQUIRE_SERVICES is set" * required):
        do_without("no server")


@pytest.mark.usefixtures("bare_system")
@pytest.mark.parametrize("name", STARTS)
def test_a_server_that_is_not_installed_skips_a_test(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATALENS_REQUIRE_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{name} is not installed"):
        STARTS[name](tmp_path)


def test_a_program_is_found_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chromium-browser"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("chromium", program.name) == str(program)


@pytest.mark.parametrize("program", ["redis-server", "/usr/bin/redis-server", "curl"])
def test_no_test_starts_a_program_that_it_has_not_looked_for(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed as well, so that whoever writes the test notices."""
    monkeypatch.setattr(other_programs, "_found", set())
    with pytest.raises(AssertionError, match="was not looked for"):
        subprocess.run([program, "--version"], check=False)


def test_a_test_may_start_what_every_system_has() -> None:
    assert subprocess.run([shutil.which("true") or "true"], check=False).returncode == 0
