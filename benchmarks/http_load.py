"""Servers in processes of their own, and clients that cost little: HTTP/1.1 over plain sockets, kept open."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PIECE = 2**20
_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Request:
    """One request; `body` is sent as it is."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def head(self, length: int) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: service", f"Content-Length: {length}"]
        return "\r\n".join([*lines, *(f"{key}: {value}" for key, value in self.headers.items()), "", ""]).encode()


@dataclass(frozen=True)
class Running:
    """A server that answers.

    Attributes:
        port: Of this machine.
        pid: Of its process.
    """

    port: int
    pid: int

    def memory_bytes(self) -> int:
        """Memory of the process itself; pages of mapped files, which the kernel drops at will, are not counted."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024

    def processor_seconds(self) -> float:
        """Processor time that the process has taken so far, all of its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serve(application: str, environment: dict[str, str], log: Path) -> Generator[Running]:
    """Run an application factory under uvicorn, one process, as `datalens serve` does."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--factory", "--port", str(port), "--no-access-log", "--log-level", "warning", "--backlog", "2048"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", application, *options], env={**os.environ, **environment}, stderr=output
        )
        try:
            _until_it_listens(port, process)
            yield Running(port, process.pid)
        finally:
            process.terminate()
            process.wait()


def drive(server: Running, clients: int, requests: Sequence[Request], expected: int) -> dict[str, Any]:
    """Send all requests from `clients` connections at once.

    Returns:
        Requests per second, processor time of the server per request, and p50 and p95 of the latency, in milliseconds;
        every answer had the status `expected`.
    """
    started, processor = time.perf_counter(), server.processor_seconds()
    latencies = asyncio.run(_drive(server.port, clients, requests, expected))
    seconds, processor = time.perf_counter() - started, server.processor_seconds() - processor
    cuts = statistics.quantiles(latencies, n=20)
    return {
        "requests_per_second": round(len(latencies) / seconds, 1),
        "processor_ms": round(1000 * processor / len(latencies), 2),
        "p50_ms": round(1000 * cuts[9], 1),
        "p95_ms": round(1000 * cuts[18], 1),
    }


def transferred(server: Running, request: Request, times: int) -> float:
    """MiB per second of downloading the same thing on one connection, read and thrown away.

    Raises:
        RuntimeError: An answer was not 200.
    """
    buffer, received, started = bytearray(_PIECE), 0, time.perf_counter()
    with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        for _ in range(times):
            connection.sendall(request.head(0))
            left = _length_after_head(connection, buffer, request)
            received += left[1]
            remaining = left[0] - left[1]
            while remaining > 0:
                count = connection.recv_into(buffer, min(_PIECE, remaining))
                if count == 0:
                    raise ConnectionError("the server hung up")
                remaining -= count
                received += count
    return received / 2**20 / (time.perf_counter() - started)


def uploaded(server: Running, request: Request, pieces: Iterator[bytes], length: int, expected: int) -> list[int]:
    """Send a body piece by piece and wait for the answer.

    Returns:
        Memory of the server in bytes: before, at every twentieth of a second, and at the end.

    Raises:
        RuntimeError: The status of the answer was not `expected`.
    """
    samples, next_sample = [server.memory_bytes()], 0.0
    with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        connection.sendall(request.head(length))
        for piece in pieces:
            connection.sendall(piece)
            if time.monotonic() >= next_sample:
                samples.append(server.memory_bytes())
                next_sample = time.monotonic() + _SAMPLE_SECONDS
        while not select.select([connection], [], [], _SAMPLE_SECONDS)[0]:
            samples.append(server.memory_bytes())
        _check_status(request, connection.recv(_PIECE), expected)
    return [*samples, server.memory_bytes()]


async def _drive(port: int, clients: int, requests: Sequence[Request], expected: int) -> list[float]:
    waiting = iter(requests)
    latencies = await asyncio.gather(*(_client(port, waiting, expected) for _ in range(clients)))
    return [one for many in latencies for one in many]


async def _client(port: int, waiting: Iterator[Request], expected: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    latencies = []
    for request in waiting:
        started = time.perf_counter()
        writer.write(request.head(len(request.body)) + request.body)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_content_length(head))
        latencies.append(time.perf_counter() - started)
        _check_status(request, head, expected)
    writer.close()
    return latencies


def _check_status(request: Request, head: bytes, expected: int) -> None:
    if int(head[9:12]) != expected:
        raise RuntimeError(f"{request.method} {request.path} was answered with {head[:12]!r}")


def _length_after_head(connection: socket.socket, buffer: bytearray, request: Request) -> tuple[int, int]:
    """(length of the body, bytes of it that came with the head)."""
    head = b""
    while b"\r\n\r\n" not in head:
        count = connection.recv_into(buffer)
        head += bytes(buffer[:count])
    head, _, rest = head.partition(b"\r\n\r\n")
    _check_status(request, head, 200)
    return _content_length(head), len(rest)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise RuntimeError("the answer has no length")


def _until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
