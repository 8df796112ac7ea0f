"""The backup of deploy/kubernetes runs, as its CronJob starts it, against a real PostgreSQL, and is restored."""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy
import yaml

from datalens_service.adapters.startup import start
from datalens_service.base.settings import Settings
from datalens_service.store.database import Database
from deployments.deployment import QUICK, Deployment
from deployments.postgresql import Cluster
from other_programs import find_program
from repository import ROOT

FOLDER = ROOT / "deploy" / "kubernetes" / "components" / "backups"
[CRON_JOB] = yaml.safe_load_all((FOLDER / "cronjob.yaml").read_text())
[CONTAINER] = CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()


class Backups(NamedTuple):
    """A service, and the CronJob beside it: its command line, with the folders of a container in a folder of ours."""

    deployment: Deployment
    folder: Path
    path: str

    def run(self, **changes: str) -> subprocess.CompletedProcess[str]:
        """One night's backup, later than the one before."""
        time.sleep(1.1)
        values = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
        environment = {name: value if value[0] != "/" else self.place(value) for name, value in values.items()}
        command = [self.place(part) if part.startswith("/") else part for part in CONTAINER["command"]]
        command[0] = str(shutil.which(command[0], path=self.path))
        return subprocess.run(
            command, env={**environment, "PATH": self.path, **changes}, capture_output=True, text=True, check=False
        )

    def place(self, path: str) -> str:
        """Where something of the container is here."""
        return f"{self.folder}{path}"

    def list(self) -> list[Path]:
        return sorted(path for path in Path(self.place("/backups")).iterdir())

    @property
    def copy(self) -> Path:
        return Path(self.place("/ledger-backups/ledger.log"))

    @property
    def log(self) -> Path:
        return Path(self.place("/ledger/datalens/ledger.log"))


@pytest.fixture(params=["sh", "busybox"])
def backups(
    request: pytest.FixtureRequest, postgresql: Cluster, postgresql_database: Database, tmp_path: Path
) -> Backups:
    """With the programs of this system, and with those of the image, which are busybox's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    if request.param == "busybox":
        subprocess.run([find_program("busybox"), "--install", "-s", str(programs)], check=True)
    # Not the one on the PATH of Debian, which is a script in Perl.
    (programs / "pg_dump").symlink_to(Path(find_program("initdb")).resolve().with_name("pg_dump"))
    path = str(programs) if request.param == "busybox" else f"{programs}:/usr/bin:/bin"
    (tmp_path / "service").mkdir()
    deployment = Deployment(postgresql_database, tmp_path / "service")
    found = Backups(deployment, tmp_path, path)
    for folder in ("data", "ledger/datalens", "backups", "ledger-backups", "scripts", "run/secrets/datalens-backup"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(FOLDER / "backup.sh", tmp_path / "scripts")
    (tmp_path / "data" / "datalens").symlink_to(deployment.settings.data_dir)
    found.log.symlink_to(deployment.ledger_log)
    write_service(found, postgresql, str(sqlalchemy.make_url(postgresql_database.url).database))
    return found


def write_service(backups: Backups, cluster: Cluster, database: str) -> None:
    """The role and the service file of the page, with the addresses of this cluster."""
    [statement] = re.findall(r"^CREATE ROLE datalens_backup .*;$", PAGE, re.MULTILINE)
    cluster.execute("DROP ROLE IF EXISTS datalens_backup")
    cluster.execute(statement)
    [named] = re.findall(r"```ini\n(\[datalens\]\n.*?)```", PAGE, re.DOTALL)
    lines = dict(line.split("=", 1) for line in named.splitlines()[1:])
    ours = {**lines, "host": str(cluster.folder), "dbname": database, "sslmode": "disable"}
    del ours["sslrootcert"]
    written = "".join(f"{name}={value}\n" for name, value in ours.items())
    Path(backups.place("/run/secrets/datalens-backup/pg_service.conf")).write_text(f"[datalens]\n{written}")


def read_all(url: str) -> dict[str, list[Any]]:
    """All rows of a database."""
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        tables = sqlalchemy.inspect(engine).get_table_names()
        found = {name: sorted(map(str, connection.execute(sqlalchemy.text(f"TABLE {name}")))) for name in tables}
    engine.dispose()
    return found


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_backup_is_whole_and_a_service_starts_from_it(backups: Backups, postgresql: Cluster, tmp_path: Path) -> None:
    deployment = backups.deployment
    job = deployment.execute(deployment.submit(QUICK))
    before = read_all(deployment.database.url)
    done = backups.run()
    assert done.returncode == 0, done.stderr
    [night] = backups.list()
    kept = {name for name in list_files(deployment.settings.data_dir) if name.startswith(("datasets/", "artifacts/"))}
    assert {name.split("/")[0] for name in kept} == {"datasets", "artifacts"}
    assert list_files(night / "data") == {
        name: content for name, content in list_files(deployment.settings.data_dir).items() if name in kept
    }
    assert night.stat().st_mode & 0o077 == 0
    assert backups.copy.read_bytes() == backups.log.read_bytes()

    url = postgresql.new_database("template0")
    restores = [find_program("pg_restore"), "--dbname", url.replace("+psycopg", "")]
    subprocess.run([*restores, str(night / "database.dump")], check=True)
    assert read_all(url) == before
    shutil.copytree(night / "data", tmp_path / "restored")
    shutil.copy(backups.copy, tmp_path / "ledger.log")
    restored = start(Settings(data_dir=tmp_path / "restored", database_url=url, ledger_log=tmp_path / "ledger.log"))
    try:
        assert Deployment(restored, tmp_path / "restored").job(job).state == job.state
    finally:
        restored.dispose()


def test_later_nights_share_files_and_forget_what_was_deleted(backups: Backups) -> None:
    deployment = backups.deployment
    deployment.execute(deployment.submit(QUICK))
    assert backups.run().returncode == 0
    gone = next((deployment.settings.data_dir / "artifacts").rglob("report.json"))
    gone.unlink()
    for _ in range(2):
        done = backups.run(BACKUP_KEEP="2")
        assert done.returncode == 0, done.stderr
    first, second = backups.list()
    files = [name for name in list_files(first) if name.startswith("data/")]
    assert files
    assert all((first / name).samefile(second / name) for name in files)
    assert not any(name.endswith(f"{gone.parent.name}/report.json") for name in files)


def test_a_copy_of_the_log_is_never_replaced_by_another_log(backups: Backups) -> None:
    deployment = backups.deployment
    deployment.execute(deployment.submit(QUICK))
    assert backups.run().returncode == 0
    whole = backups.copy.read_bytes()
    assert len(whole) > 10
    for wrong in (whole[:-5], b"x" + whole[1:] + b"more\n"):
        deployment.ledger_log.write_bytes(wrong)
        done = backups.run()
        assert done.returncode == 1
        assert "The log of charges does not begin with its last copy" in done.stderr
        assert backups.copy.read_bytes() == whole
    deployment.ledger_log.write_bytes(whole + b"more\n")
    assert backups.run().returncode == 0
    assert backups.copy.read_bytes() == whole + b"more\n"


def test_what_fails_leaves_no_backup_that_looks_whole(backups: Backups) -> None:
    backups.deployment.ledger_log.touch()
    done = backups.run(PGSERVICE="another")
    assert done.returncode != 0
    assert "another" in done.stderr
    assert not [path for path in backups.list() if path.name != "unfinished"]
    assert not backups.copy.exists()
    done = backups.run(BACKUP_DATA="/nowhere")
    assert done.returncode == 1
    assert "is the service running?" in done.stderr
