"""The server of `datalens serve` ends although a thread that answers a request does not."""

import subprocess
import sys

CHILD = """
import signal, socket, sys, threading, time
import anyio.to_thread
from starlette.applications import Starlette
from starlette.routing import Route
from datalens_service.cli import api_server
from datalens_service.base.settings import Settings

asked = threading.Event()

def block(request):
    asked.set()
    time.sleep(3600)

def create(settings):
    application = Starlette(routes=[Route("/", block)])
    application.state.stopping = threading.Event()
    return application

def ask():
    connection = socket.create_connection(listener.getsockname())
    connection.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    asked.wait()
    signal.raise_signal(signal.SIGTERM)
    connection.recv(1)

api_server.create = create
api_server.APPLICATION = "datalens_service.cli.api_server:create"
api_server._CLOSING_SECONDS = 0
listener = socket.create_server(("127.0.0.1", 0))
server = api_server.ApiServer(Settings(drain_seconds=1), threading.Thread(target=ask, daemon=True).start)
server.on_signal = lambda: print("signal", flush=True)
server.on_overdue = lambda: print("overdue", flush=True)
signal.signal(signal.SIGTERM, server.handle_exit)
server.run(sockets=[listener])
print("served", flush=True)
"""


def test_a_thread_that_does_not_return_does_not_keep_the_service() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout.split()[0], ended.stdout.split()[-1]) == (0, "signal", "overdue"), ended
