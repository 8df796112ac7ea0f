"""Redis and PostgreSQL of docker-compose.yml start with the rights that it leaves them: none, on a read-only root."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import container
from deployments.container import VOLUME
from other_programs import do_without, find_program

SERVICES: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["services"]
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]
SERVED = """
for _ in $(seq 600); do if {asks}; then break; fi; sleep 0.1; done
{asks}
{uses}
grep -E '^(Uid|CapBnd|CapEff|NoNewPrivs):' /proc/self/status
touch /root-is-writable 2>&1 || true
"""


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


def written(value: str) -> str:
    """A value as compose hands it to a container."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", "secret", value).replace("$$", "$")


def run(name: str, start: str, uses: str, volume: Path, programs: dict[str, str]) -> str:
    """Start a service, wait until its own check of health is content, and use it."""
    service = SERVICES[name]
    (volume / "bin").mkdir()
    for called, path in programs.items():
        (volume / "bin" / called).symlink_to(path)
    environment = {variable: written(value) for variable, value in service["environment"].items()}
    environment |= {"PATH": f"{VOLUME}/bin:/usr/bin:/bin", "PGDATA": f"{VOLUME}/data"}
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        do_without("this user may mount nothing")
    script = start + SERVED.format(asks=written(service["healthcheck"]["test"][1]), uses=uses)
    arguments = [service["user"], ":".join(service["tmpfs"]), str(volume), script]
    command = [*NAMESPACES, sys.executable, container.__file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_rights(printed: str, name: str) -> None:
    uid = SERVICES[name]["user"].split(":")[0]
    assert re.search(rf"^Uid:\s+{uid}\s+{uid}\s+{uid}\s+{uid}$", printed, re.MULTILINE)
    assert dict(re.findall(r"^(Cap\w+):\s+(\w+)$", printed, re.MULTILINE)) == {"CapEff": "0" * 16, "CapBnd": "0" * 16}
    assert re.search(r"^NoNewPrivs:\s+1$", printed, re.MULTILINE)
    assert "Read-only file system" in printed


def test_the_broker_starts_without_root_and_capabilities(volume: Path) -> None:
    server = find_program("redis-server")
    programs = {"valkey-server": server, "valkey-cli": str(Path(server).with_name("redis-cli"))}
    shell, option, command = SERVICES["redis"]["command"]
    assert (shell, option) == ("sh", "-c")
    uses = 'REDISCLI_AUTH="$REDIS_PASSWORD" valkey-cli set kept yes\nls appendonlydir'
    printed = run("redis", f"({written(command)}\n) > log 2>&1 &\n", uses, volume, programs)
    assert "OK" in printed
    assert "appendonly.aof.manifest" in printed
    check_rights(printed, "redis")


def test_the_database_starts_without_root_and_capabilities(volume: Path) -> None:
    folder = Path(find_program("initdb")).parent
    programs = {name: str(folder / name) for name in ("initdb", "postgres", "pg_isready", "psql")}
    # As the entry point of the image makes a cluster where there is none.
    makes = 'initdb --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") $POSTGRES_INITDB_ARGS > log'
    start = f"{makes}\n{' '.join(SERVICES['postgres']['command'])} >> log 2>&1 &\n"
    query = "CREATE TABLE kept (number int)"
    uses = f'PGPASSWORD="$POSTGRES_PASSWORD" psql -U datalens -d postgres -h 127.0.0.1 -c "{query}"'
    printed = run("postgres", start, uses, volume, programs)
    assert "CREATE TABLE" in printed
    check_rights(printed, "postgres")
