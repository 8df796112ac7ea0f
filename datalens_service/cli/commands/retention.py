"""`datalens retention`: for how many days things are kept; for the operator, on the machine of the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.base.clock import to_second
from datalens_service.cli import options, output
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.review import confirm
from datalens_service.cli.service import open_database

if TYPE_CHECKING:
    from datalens_service.services.due import Due
    from datalens_service.store.access.retention import Retention
    from datalens_service.store.database import Database

app = Commands(
    help="For how many days things are kept; for the operator, on the machine of the database.", no_args_is_help=True
)

Tenant = Annotated[
    str | None, typer.Option("--tenant", help="Name or id of a tenant; default: the whole installation.")
]


def _days(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="DAYS", parser=build_integer_parser(0, 36_500), help=f"Days for {what}.")


@dataclass(frozen=True)
class Days:
    """Options for the days of each kind of thing."""

    datasets: Annotated[int | None, _days("datasets", "data sets with their records, from their upload on")] = None
    results: Annotated[int | None, _days("results", "files of jobs and findings of audits, from their end on")] = None
    uploads: Annotated[int | None, _days("uploads", "reports on uploads that could not be used")] = None
    events: Annotated[int | None, _days("events", "events of jobs that have ended")] = None
    deliveries: Annotated[int | None, _days("deliveries", "messages to webhooks that were told or given up")] = None
    journal: Annotated[int | None, _days("journal", "entries of the audit journal; 30 at least")] = None


NOTHING: Final = Days()


@app.command()
def show(
    tenant: Tenant = None, data_dir: options.DataDir = options.DEFAULT_DATA_DIR, as_json: options.AsJson = False
) -> None:
    """Show for how many days things are kept; in a tenant, the shorter time of its own and of the installation."""
    from datalens_service.store.access import retention

    with open_database(data_dir) as database, database.session() as session:
        tenant_id = _find(database, tenant)
        policy = retention.read_effective(session, tenant_id) if tenant_id else retention.read(session)
    output.show(vars(policy), _render(policy), as_json=as_json)


@app.command(name="set")
def set_(
    tenant: Tenant = None,
    days: Days = NOTHING,
    yes: options.Yes = False,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Set for how many days things are kept; what is not named is kept for ever. Says what goes at once, and asks."""
    from datalens_service.store.access import retention
    from datalens_service.store.access.retention import Retention

    policy = Retention(**vars(days))
    with open_database(data_dir) as database:
        tenant_id = _find(database, tenant)
        found = _preview(database, tenant_id, 0, policy)
        output.say(_count(found))
        confirm("Set these times? What is older is removed within a minute, and nobody can bring it back.", yes=yes)
        retention.change(database, tenant_id, policy, actor="local")
    output.show(vars(policy), _render(policy), as_json=as_json)


@app.command()
def preview(
    tenant: Tenant = None,
    within: Annotated[
        int, typer.Option("--within", metavar="DAYS", parser=build_integer_parser(0, 36_500), help="Days from now.")
    ] = 30,
    days: Days = NOTHING,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Show what goes, and when. With days of any kind, tries a policy of these alone. Removes nothing."""
    from datalens_service.store.access.retention import FOR_EVER, Retention

    tried = Retention(**vars(days))
    with open_database(data_dir) as database:
        found = _preview(database, _find(database, tenant), within, None if tried == FOR_EVER else tried)
    items = [{**vars(one), "at": to_second(one.at).isoformat()} for one in found]
    columns = ("at", "kind", "object_id", "count", "tenant_id", "waits_for")
    output.show_items(items, columns, as_json=as_json)


def _preview(database: Database, tenant_id: str, within: int, policy: Retention | None) -> tuple[Due, ...]:
    from datalens_service.services import removal
    from datalens_service.store.access import tenants

    every = [one.id for one in tenants.list_tenants(database)]
    return removal.preview(database, [tenant_id] if tenant_id else every, timedelta(days=within), policy)


def _find(database: Database, tenant: str | None) -> str:
    """Find the id of a tenant; the empty one for the installation."""
    from datalens_service.store.access import tenants

    return "" if tenant is None else tenants.find(database, tenant).id


def _count(found: tuple[Due, ...]) -> str:
    kinds = dict.fromkeys(one.kind for one in found)
    counted = (f"{sum(one.count for one in found if one.kind == kind):,} of {kind}" for kind in kinds)
    return f"Old enough now: {', '.join(counted) or 'nothing'}."


def _render(policy: Retention) -> str:
    return "\n".join(
        f"{name}: {'for ever' if days is None else f'{days:,} days'}" for name, days in vars(policy).items()
    )
