"""`datalens tenants`: tenants of a service with its data folder on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datalens_service.cli import options, output
from datalens_service.cli.commands.keys import open_database

if TYPE_CHECKING:
    from datalens_service.store.access.tenants import Tenant

app = typer.Typer(help="Tenants; for the operator, on the machine of the database.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Make a tenant. It has no keys yet: `datalens keys create --tenant NAME`."""
    from datalens_service.store.access import tenants

    with open_database(data_dir) as database:
        tenant = _describe_tenant(tenants.create(database, name))
    output.show(tenant, tenant["id"], as_json=as_json)


@app.command(name="list")
def list_(data_dir: options.DataDir = options.DEFAULT_DATA_DIR, as_json: options.AsJson = False) -> None:
    """List tenants."""
    from datalens_service.store.access import tenants

    with open_database(data_dir) as database:
        items = [_describe_tenant(tenant) for tenant in tenants.list_tenants(database)]
    output.show_items(items, ("id", "name", "created_at"), as_json=as_json)


def _describe_tenant(tenant: Tenant) -> dict[str, Any]:
    return {"id": tenant.id, "name": tenant.name, "created_at": tenant.created_at.isoformat()}
