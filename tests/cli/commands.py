"""Every command that there is."""

import functools
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from datalens_service.cli.app import app


@functools.cache
def commands() -> tuple[tuple[str, Any], ...]:
    """Every command with its name, for example `jobs show`."""
    return tuple(_below(get_command(app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, one in below.items():
        yield from _below(one, (*path, name))
