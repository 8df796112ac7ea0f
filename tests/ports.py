"""Ports of this machine for servers that cannot choose one themselves."""

import random
import socket

_RANDOM = random.SystemRandom()


def free_port() -> int:
    """A port that nobody listens on.

    It lies below those that the system gives to connections, so that none of them takes it before the server does.
    """
    while True:
        port = _RANDOM.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
