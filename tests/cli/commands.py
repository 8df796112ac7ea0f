"""Every command that there is."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from datalens_service.cli.app import app


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name, for example `jobs show`."""
    return _below(get_command(app), ())


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, one in below.items():
        yield from _below(one, (*path, name))
