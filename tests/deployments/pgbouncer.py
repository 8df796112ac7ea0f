"""PgBouncer as docs/deploy.md sets it up, before a PostgreSQL of our own."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from other_programs import find_program
from ports import free_port

_PATIENCE = 60.0


class PgBouncer:
    """In transaction mode, on a port of 127.0.0.1.

    Args:
        sockets: Folder of the server's Unix socket.
        users: Passwords of those who may come in.
        settings: Lines instead of those of the documentation.
        databases: Line of the databases that it leads to, instead of one for all of the server.
    """

    def __init__(
        self, sockets: Path, users: dict[str, str], settings: tuple[str, ...] = (), databases: str = ""
    ) -> None:
        self._program = find_program("pgbouncer")
        self.port = free_port()
        self._folder = sockets / f"pgbouncer-{self.port}"
        self._folder.mkdir()
        documented = ("pool_mode = transaction", "ignore_startup_parameters = options")
        lines = (
            "[databases]",
            databases or f"* = host={sockets}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = plain",
            f"auth_file = {self._folder / 'users'}",
            *(settings or documented),
        )
        (self._folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self._folder / "users").write_text("".join(f'"{name}" "{word}"\n' for name, word in users.items()))
        self._server: subprocess.Popen[bytes] | None = None

    def url(self, name: str, user: str, password: str) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{name}"

    def serve(self) -> None:
        """Start it, and wait until it takes connections."""
        # It refuses to run as root.
        root = os.geteuid() == 0
        for path in (self._folder, *self._folder.iterdir()) if root else ():
            shutil.chown(path, "postgres", "postgres")
        prefix = ["setpriv", *(["--reuid=postgres", "--regid=postgres", "--clear-groups"] if root else [])]
        command = [*prefix, "--pdeathsig", "INT", self._program, str(self._folder / "pgbouncer.ini")]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, cwd=self._folder, stderr=log, stdout=log)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()
