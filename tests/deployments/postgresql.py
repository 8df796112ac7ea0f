"""A PostgreSQL server of our own, that can be killed and started again."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import sqlalchemy

from other_programs import find_program
from ports import free_port
from processes import wait_until_gone

TEMPLATE = "datalens_template"
_PATIENCE = 240.0


class Cluster:
    """A PostgreSQL server of our own in a temporary folder, reached through a Unix socket.

    Args:
        certificate: With its key; the server is reached through TLS on a port of 127.0.0.1, too.
    """

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self._binaries = Path(find_program("initdb")).parent
        self.folder = folder
        self._data = folder / "data"
        # The server refuses to run as root.
        self._as_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        self._server: subprocess.Popen[bytes] | None = None
        # Databases come and go: nobody vacuums, and no other server follows.
        self._settings = ["autovacuum=off", "wal_level=minimal", "max_wal_senders=0"]
        self.port = 5432 if certificate is None else free_port()
        self._certificate = certificate

    def start(self) -> None:
        """Make the cluster and serve it."""
        if self._as_postgres:
            shutil.chown(self.folder, "postgres", "postgres")
        options = ["-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(self._command("initdb", *options), check=True, cwd=self.folder, stdout=subprocess.DEVNULL)
        self.serve()

    def serve(self) -> None:
        """Start the server on the cluster, again if it was stopped or killed."""
        settings = ["max_connections=200", f"port={self.port}", *self._listening(), *self._settings]
        options = ["-D", str(self._data), "-k", str(self.folder), *(part for one in settings for part in ("-c", one))]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                self._command("postgres", *options), cwd=self.folder, stderr=log, stdout=log
            )
        self._wait_until_ready()

    def _listening(self) -> list[str]:
        if self._certificate is None:
            return ["listen_addresses="]
        # The server wants a key that belongs to its own user.
        own = self.folder / "server.pem"
        shutil.copy(self._certificate, own)
        own.chmod(0o600)
        if self._as_postgres:
            shutil.chown(own, "postgres", "postgres")
        return ["listen_addresses=127.0.0.1", "ssl=on", f"ssl_cert_file={own}", f"ssl_key_file={own}"]

    def ask_for_passwords(self) -> None:
        """From now on, everybody but the user postgres of this machine needs a password."""
        lines = ("local all postgres trust", "local all all scram-sha-256", "host all all 127.0.0.1/32 scram-sha-256")
        (self._data / "pg_hba.conf").write_text("\n".join(lines) + "\n")
        self.execute("SELECT pg_reload_conf()")

    def stop(self) -> None:
        """At once; nobody needs the data."""
        assert self._server is not None
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()

    def kill(self) -> None:
        """As a crash would: the server first, then the processes it leaves, each of which leads its own group."""
        assert self._server is not None
        left = self._children()
        self._server.kill()
        self._server.wait()
        for process_id in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        # A server does not start as long as one of them has the old shared memory.
        assert wait_until_gone(left, _PATIENCE) == []

    def replicate(self, folder: Path) -> "Cluster":
        """A server that follows this one, which is started again for it."""
        self.kill()
        self._settings = ["autovacuum=off", "wal_level=replica", "max_wal_senders=4"]
        self.serve()
        replica = Cluster(folder)
        if self._as_postgres:
            shutil.chown(folder, "postgres", "postgres")
        source = ["-h", str(self.folder), "-U", "postgres", "-R", "--checkpoint=fast"]
        subprocess.run(self._command("pg_basebackup", *source, "-D", str(replica._data)), check=True, cwd=folder)
        replica._settings = self._settings
        replica.serve()
        return replica

    def give_up(self) -> None:
        """Follow the other server no more."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")

    def take_over(self, replica: "Cluster") -> None:
        """Serve what a replica knows, in the place of this server, which is dead."""
        replica.execute("SELECT pg_promote()")
        replica.kill()
        self._data = replica._data
        self.serve()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile, the server and all its processes stand still; the kernel goes on to take what they are sent."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        # Once it stands still, it neither forks nor forgets a process.
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED)
        processes = [self._server.pid, *self._children()]
        try:
            for process_id in processes:
                os.kill(process_id, signal.SIGSTOP)
            yield
        finally:
            for process_id in processes:
                os.kill(process_id, signal.SIGCONT)

    def _children(self) -> list[int]:
        assert self._server is not None
        path = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children")
        return [int(process_id) for process_id in path.read_text().split()]

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}&port={self.port}"

    def tls_url(self, name: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{name}"

    def new_database(self, template: str | None = None) -> str:
        name = f"test_{uuid4().hex}" if template else TEMPLATE
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()

    def _command(self, program: str, *arguments: str) -> list[str]:
        # The server ends with this process, however this process ends.
        prefix = ["setpriv", *self._as_postgres, "--pdeathsig", "QUIT"]
        return [*prefix, str(self._binaries / program), *arguments]

    def _wait_until_ready(self) -> None:
        engine = sqlalchemy.create_engine(self.url("postgres"))
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                engine.connect().close()
                break
            except sqlalchemy.exc.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        engine.dispose()


def roomy_memory() -> Path | None:
    """A memory file system: the cluster syncs every commit, which a shared disk makes slow."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None
