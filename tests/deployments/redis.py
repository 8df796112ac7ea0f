"""A Redis server of our own, with a password, that can be killed and started again."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from other_programs import find_program
from ports import free_port


class Redis:
    """On a port of this machine; what it was told survives it, as in docker-compose.yml."""

    def __init__(self, folder: Path, password: str, certificate: Path | None = None) -> None:
        self._program = find_program("redis-server")
        self.port = free_port()
        self._folder = folder
        self._password = password
        self.certificate = certificate
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis{'s' if self.certificate else ''}://:{self._password}@127.0.0.1:{self.port}/0"

    def serve(self) -> None:
        """Start it, again if it was killed."""
        settings = f"""
            port {0 if self.certificate else self.port}
            bind 127.0.0.1
            dir {self._folder}
            requirepass "{self._password}"
            appendonly yes
            appendfsync everysec
            maxmemory-policy noeviction
            save ""
        """
        if self.certificate is not None:
            settings += f"""
                tls-port {self.port}
                tls-cert-file {self.certificate}
                tls-key-file {self.certificate}
                tls-ca-cert-file {self.certificate}
                tls-auth-clients no
            """
        # Through standard input, so that the password is in no list of processes.
        self._server = subprocess.Popen([self._program, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self._server.stdin is not None
        self._server.stdin.write(settings.encode())
        self._server.stdin.close()
        wait_for_port(self.port)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile it stands still; the kernel goes on to take what it is sent."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()


def wait_for_port(port: int, seconds: float = 240) -> None:
    """Until somebody listens on it.

    Raises:
        OSError: Nobody does.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
