"""TLS to PostgreSQL and Redis: what comes to whoever answers with a certificate of another authority."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from certificates import issue_certificate
from deployments.deployment import QUICK
from deployments.stack import SECRET, CeleryStack
from ports import free_port

from .lost import find_lost, read_rows, say_lost
from .served import Figures, read

_REQUEST_FOR_TLS = bytes.fromhex("0000000804d2162f")
"""What a client of PostgreSQL sends first."""

_PATIENCE = 60.0


def wrong_authority(folder: Path) -> Figures:
    """Both servers are reached as documented; then somebody with another certificate answers in the place of each."""
    ours, another = folder / "ca.pem", folder / "another.pem"
    for authority in (ours, another):
        issue_certificate(authority)
    stack = CeleryStack(folder, ours)
    database = f"postgresql://service:{SECRET}@127.0.0.1:PORT/service?sslrootcert={ours}"
    broker = f"rediss://:{SECRET}@127.0.0.1:PORT/0?ssl_ca_certs={ours}"
    real = {
        "DATALENS_DATABASE_URL": database.replace("PORT", str(stack.postgresql.port)),
        "DATALENS_BROKER_URL": broker.replace("PORT", str(stack.redis.port)),
    }
    stack.changes |= real
    try:
        stack.serve()
        before = read_rows(stack.database)
        job = stack.wait_for_end(stack.order(QUICK))
        degraded = read(stack, "/readyz")["degraded"]
        with _impostor(another, postgresql=True) as (port, came):
            refused = _start(stack, DATALENS_DATABASE_URL=database.replace("PORT", str(port)))
        with _impostor(another) as (port, sent):
            told = _look(stack, DATALENS_BROKER_URL=broker.replace("PORT", str(port)))
        with _impostor(another) as (port, unverified):
            careless = broker.replace("PORT", str(port)).partition("?")[0] + "?ssl_cert_reqs=none"
            warned = _look(stack, DATALENS_BROKER_URL=careless)
        lost = find_lost(stack, before)
    finally:
        stack.close()
    figures = {"job": job.state.value, "degraded": degraded, "start_refused_for_certificate": "certificate" in refused}
    figures |= {"bytes_to_another_database": len(came), "bytes_to_another_broker": len(sent)}
    figures |= {"broker_told": told, "without_verification": warned}
    figures |= {"its_password_arrived": SECRET.encode() in unverified}
    nothing_sent = not came and not sent
    passed = nothing_sent and figures["start_refused_for_certificate"] and "broker" in told and "broker" in warned
    passed = passed and not degraded and figures["its_password_arrived"] and job.state == "succeeded"
    return figures | {"lost": say_lost(lost), "passed": passed and not lost}


@contextmanager
def _impostor(certificate: Path, *, postgresql: bool = False) -> Iterator[tuple[int, bytearray]]:
    """Somebody who answers with a certificate; its port, and what came to it in plain text."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    came = bytearray()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        threading.Thread(target=_answer, args=(server, context, came, postgresql), daemon=True).start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)


def _answer(server: socket.socket, context: ssl.SSLContext, came: bytearray, postgresql: bool) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        # A client that refuses the certificate hangs up.
        with suppress(OSError), connection:
            connection.settimeout(5)
            if postgresql and connection.recv(len(_REQUEST_FOR_TLS)) == _REQUEST_FOR_TLS:
                connection.sendall(b"S")
            with context.wrap_socket(connection, server_side=True) as secured:
                came += secured.recv(2**16)


def _start(stack: CeleryStack, **variables: str) -> str:
    """What an API says that does not start."""
    command = stack.start("-m", *stack.api_command(free_port()), **variables)
    written = stack.log.stat().st_size
    with suppress(subprocess.TimeoutExpired):
        command.wait(_PATIENCE)
    command.kill()
    return stack.log.read_text()[written:]


def _look(stack: CeleryStack, **variables: str) -> dict[str, str]:
    """What a second API says of its surroundings, once it says anything."""
    port = free_port()
    api = stack.start("-m", *stack.api_command(port), **variables)
    found: dict[str, str] = {}

    def told() -> bool:
        with suppress(httpx2.HTTPError):
            found.update(httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=10).json().get("degraded", {}))
        return bool(found)

    try:
        stack.wait(told)
    finally:
        api.kill()
        api.wait()
    return found
