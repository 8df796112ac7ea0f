"""`datalens journal`: who did what, and whether all journals still hold together."""

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer

from datalens_service.cli import options, output
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.service import SERVICE, Service, open_doubtful_database

app = Commands(help="The audit journal of a service: who did what, and what came of it.", no_args_is_help=True)


def parse_instant(value: str | datetime) -> datetime:
    """Parse a day or an instant in ISO 8601; without a zone it is in UTC."""
    if isinstance(value, datetime):
        return value
    try:
        instant = datetime.fromisoformat(value)
    except ValueError as error:
        raise typer.BadParameter("Must be a day or an instant, as 2026-11-29 or 2026-11-29T14:05:00Z.") from error
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


@app.command(name="list")
def list_(
    actor: Annotated[str | None, typer.Option("--actor", help="Only of this key or person, by name or id.")] = None,
    object_id: Annotated[str | None, typer.Option("--object-id", help="Only about this object.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="Only with this HTTP status, or 4xx for all of a kind.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", parser=parse_instant, help="Only of then or later, in UTC.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", parser=parse_instant, help="Only before then, in UTC.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", parser=build_integer_parser(1), help="Only before this entry.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=build_integer_parser(1), help="Most entries that are listed.")
    ] = 50,
    service: Service = SERVICE,
) -> None:
    """List who did what, newest first. For keys that may read the audit journal."""
    with service.connect() as client:
        asked = client.journal(
            actor=actor, object_id=object_id, outcome=outcome, since=since, until=until, before=before
        )
        entries = list(islice(asked, limit))
    rows = [
        (
            one.seq,
            f"{one.at:%Y-%m-%d %H:%M:%S}",
            one.actor_name or one.actor,
            one.action,
            one.object_id or "",
            one.outcome,
            one.detail,
        )
        for one in entries
    ]
    columns = ("entry", "at", "who", "what", "object", "outcome", "detail")
    output.show_items(entries, columns, rows, as_json=service.as_json)


@app.command()
def verify(
    head: Annotated[
        list[str] | None,
        typer.Option("--head", help="Hash of an entry that was noted earlier, and has to be there. Repeatable."),
    ] = None,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Check the audit journal of every tenant and the ledger of every account, on the machine of the database.

    Each entry seals the one before it. A journal that was rewritten as a whole holds together, too: note the hash of
    its head now and then, and give it with --head. Exit 1 if anything does not hold, or if a trigger that guards them
    is missing.
    """
    from datalens_service.services.journal_check import check_journals, knows_head

    with open_doubtful_database(data_dir) as database:
        checked = list(check_journals(database))
        lost = [one for one in head or () if not knows_head(database, one)]
    rows = [(one.kind, one.of, one.entries or "", one.fault or one.head_hash or "") for one in checked]
    rows += [("noted", "", "", f"No entry has the hash {one}: a journal was rewritten.") for one in lost]
    holds = not lost and all(one.fault is None for one in checked)
    view = output.format_table(("journal", "of", "entries", "head, or what does not hold"), rows)
    output.show({"holds": holds, "journals": [vars(one) for one in checked], "lost_heads": lost}, view, as_json=as_json)
    if not holds:
        raise typer.Exit(ExitCode.JOB_FAILED)
