"""Addresses of this service as others see them: behind a proxy they may begin with a path prefix, the root path.

Inside, an address is written from `/` on. Pages and documents write it by `address`, and members of JSON are a `Link`;
`http.reverse_proxy` does the same to headers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Final

from pydantic import PlainSerializer, WithJsonSchema
from starlette.types import Scope

_root_path: Final[ContextVar[str]] = ContextVar("root_path", default="")


def address(path: str) -> str:
    """Return the path that the client of the current request has to ask for.

    Args:
        path: Within this service, from `/` on; empty for the root path alone.
    """
    return _root_path.get() + path


Link = Annotated[
    str, PlainSerializer(address, return_type=str), WithJsonSchema({"type": "string", "format": "uri-reference"})
]
"""A path within this service; in JSON it is an address."""


def inner_path(scope: Scope) -> str:
    """The path of a request within this service."""
    path: str = scope["path"]
    return path.removeprefix(_root_path.get())


@contextmanager
def rooted_at(root_path: str) -> Iterator[None]:
    """Within the block, addresses have this prefix."""
    token = _root_path.set(root_path)
    try:
        yield
    finally:
        _root_path.reset(token)
