"""Prints what commands have to say: results on stdout, progress and errors on stderr.

With `--json`, stdout holds exactly one JSON object, also if the command fails: `{"error": {…}}` then.

Standard streams are taken as they come: closed, full, with nobody at the other end, or unable to show every character.
"""

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from datalens_service.base.errors import DatalensError
from datalens_service.base.parsing import spell_number
from datalens_service.base.wording import spoken
from datalens_service.client import ClientError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from datalens_service.client import Actor

_MAX_LISTED_FILES: Final = 20

Result: TypeAlias = "BaseModel | Mapping[str, Any]"


def show(data: Result, view: RenderableType, *, as_json: bool) -> None:
    """Print a result: `data` as JSON for programs, or `view` for people."""
    if as_json:
        typer.echo(_format_json(data))
    else:
        Console(soft_wrap=True, highlight=False).print(view)


def show_items(
    items: Sequence[Result], columns: Sequence[str], rows: Sequence[Sequence[object]] | None = None, *, as_json: bool
) -> None:
    """Print a list: as JSON, or as a table.

    Args:
        rows: A row for each item; None takes those of its members that are called as the columns are.
    """
    listed = [_to_members(item) for item in items]
    table = [[item[column] or "" for column in columns] for item in listed] if rows is None else rows
    titles = [column.replace("_", " ") for column in columns]
    show({"items": listed}, format_table(titles, table), as_json=as_json)


def name_actor(actor: "Actor | None") -> str:
    """Name who did something, as far as the service says it."""
    return "not recorded, or not for this key" if actor is None else actor.name or actor.id


def say(what: str | Text) -> None:
    """Tell a person what is going on, on stderr."""
    with unheard():
        Console(stderr=True, soft_wrap=True).print(Text(what) if isinstance(what, str) else what, highlight=False)


def show_error(problem: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a problem, on each stream that takes it."""
    if as_json:
        with unheard():
            typer.echo(_format_json({"error": problem}))
    with unheard():
        _show_sentences(problem)


def _show_sentences(problem: Mapping[str, Any]) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(f"[bold red]{escape(str(problem['title']))}.[/] {escape(str(problem['detail']))}")
    listed = (problem.get("bad_files") or [])[:_MAX_LISTED_FILES]
    for file in listed:
        # One that is the whole detail was just said.
        reason = "" if file["reason"] == problem["detail"] else f": {file['reason']}"
        console.print(escape(f"  {file['name']}{reason}"))
    if (rest := (problem.get("bad_count") or 0) - len(listed)) > 0:
        console.print(f"  and {rest:,} more; --json names up to 1,000")


def build_problem(error: DatalensError | ClientError) -> dict[str, Any]:
    """A problem document of an error of this process or of the service."""
    problem = {"code": error.slug, "title": error.title, "detail": error.detail}
    return {**problem, **(spoken(error.extra) if isinstance(error, DatalensError) else error.problem)}


def format_facts(rows: Mapping[str, object]) -> Text:
    """Names and values, one pair per line; the further lines of a value stand below it."""
    width = max((cell_len(name) for name in rows), default=0)
    lines = []
    for name, value in rows.items():
        first, *more = _write(value).split("\n")
        lines.append(Text.assemble((set_cell_size(name, width), "dim"), "  ", first))
        lines += [Text(" " * (width + 2) + line) for line in more]
    return Text("\n").join(lines)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Text:
    """Write one line per object, never folded: ids stay whole in a pipe."""
    cells = [[_write(value) for value in row] for row in (columns, *rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(columns))]
    lines = [
        Text("  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for row in cells
    ]
    lines[0].stylize("dim")
    return Text("\n").join(lines)


def _write(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC" if isinstance(value, datetime) else str(spell_number(value))


def _to_members(data: Result) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) else data.model_dump(mode="json", by_alias=True)


def _format_json(data: Result) -> str:
    content = _to_members(data)
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(content, indent=2)
    return text


def prepare_streams() -> None:
    """Let every text be written; what a terminal cannot show is shown as a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def drop_broken() -> None:
    """Send what a broken stream has not taken nowhere, and all that follows, so that it fails only once."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _takes_text(stream):
            _send_nowhere(stream)


def is_unread(ending: BaseException) -> bool:
    """Return True if nobody reads the output any more; rich ends the program then."""
    return isinstance(ending, BrokenPipeError) or (
        isinstance(ending, SystemExit) and isinstance(ending.__context__, BrokenPipeError)
    )


@contextmanager
def unheard() -> Iterator[None]:
    """Within the block, a stream that takes nothing is not worth an error: nobody would hear of it."""
    try:
        yield
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and not is_unread(error):
            raise
        drop_broken()


def _takes_text(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _send_nowhere(stream: TextIO) -> None:
    # A stream that is no file of the operating system's has nothing to redirect.
    with suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
