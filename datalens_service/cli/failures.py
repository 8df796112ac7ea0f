"""What a command says when it fails: one sentence or a JSON object, and an exit code; never a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from datalens_service.cli import output
from datalens_service.cli.exits import ExitCode, get_exit_code
from datalens_service.cli.streams import drop_broken, is_unread
from datalens_service.client import ClientError
from datalens_service.errors import DatalensError, InsufficientStorage


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Say what went wrong within the block: deliberate errors, wrong usage, and refusals of the operating system.

    Args:
        as_json: Whether a JSON object is printed as well.

    Raises:
        typer.Exit: With the exit code.
    """
    try:
        yield
    except (DatalensError, ClientError) as error:
        raise _exit(output.build_problem(error), as_json) from error
    except (OSError, UnicodeError, SystemExit) as error:
        drop_broken()
        if is_unread(error):
            raise typer.Exit(ExitCode.UNREAD) from error
        if isinstance(error, SystemExit):
            raise
        raise _exit(_describe(error), as_json) from error
    except typer.TyperException as error:
        if not as_json:
            raise
        problem = {"code": "usage", "title": "Wrong usage", "detail": error.format_message()}
        output.show_error(problem, as_json=True)
        raise typer.Exit(error.exit_code) from error


def _exit(problem: Mapping[str, Any], as_json: bool) -> typer.Exit:
    output.show_error(problem, as_json=as_json)
    return typer.Exit(get_exit_code(problem["code"]))


def _describe(error: OSError | UnicodeError) -> dict[str, Any]:
    from datalens_service.store.disk import is_full

    if isinstance(error, UnicodeEncodeError):
        # Not the text itself, which may be a key.
        detail = f"A name or value holds characters that {error.encoding} does not have: give another one."
        return {"code": "usage", "title": "Wrong usage", "detail": detail}
    if is_full(error):
        detail = f"No room is left on the disk{_place(error, ' of {}')}. Free some, and repeat the command."
        return {"code": InsufficientStorage.slug, "title": InsufficientStorage.title, "detail": detail}
    if isinstance(error, OSError):
        detail = f"{error.strerror or str(error) or type(error).__name__}{_place(error, ': {}')}"
    else:
        detail = f"It is not text as expected ({error})."
    return {"code": "file", "title": "File not usable", "detail": detail}


def _place(error: BaseException, form: str) -> str:
    name = getattr(error, "filename", None)
    return "" if name is None else form.format(name)
