"""`datalens keys`, of a service with its data folder on this machine."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from datalens_service.cli import options, output
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.review import confirm
from datalens_service.cli.service import open_database

if TYPE_CHECKING:
    from datalens_service.store.access.keys import ApiKey


RoleName = Literal["owner", "operator", "steward", "consumer"]
"""Roles of keys, as `store.access.roles.Role`, which would import the database at every start of a command."""

app = typer.Typer(help="API keys; for the operator, on the machine of the database.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Option("--name", help="Name of the key's owner.")],
    role: Annotated[RoleName, typer.Option("--role", help="Role of the key; see docs/api.md.")] = "owner",
    tenant: Annotated[str, typer.Option("--tenant", help="Name or id of its tenant.")] = "default",
    days: Annotated[
        int | None,
        typer.Option("--days", parser=build_integer_parser(1, 36_500), help="Days until it expires; default: never."),
    ] = None,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Make an API key and print it, once."""
    from datalens_service.store.access import keys, tenants
    from datalens_service.store.access.roles import Role
    from datalens_service.store.database_clock import read_clock

    with open_database(data_dir) as database:
        expires_at = None if days is None else read_clock(database) + timedelta(days=days)
        tenant_id = tenants.find(database, tenant).id
        request = keys.KeyRequest(name=name, tenant_id=tenant_id, role=Role(role), expires_at=expires_at)
        key, secret = keys.create(database, request)
    output.show({**_describe_key(key), "api_key": secret}, secret, as_json=as_json)


@app.command(name="list")
def list_(data_dir: options.DataDir = options.DEFAULT_DATA_DIR, as_json: options.AsJson = False) -> None:
    """List API keys, revoked ones included."""
    from datalens_service.store.access import keys

    with open_database(data_dir) as database:
        items = [_describe_key(key) for key in keys.list_keys(database)]
    columns = ("id", "name", "prefix", "tenant", "role", "created_at", "expires_at", "revoked_at")
    output.show_items(items, columns, as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, key_….")],
    yes: options.Yes = False,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Make an API key useless from now on. Asks first."""
    from datalens_service.store.access import keys

    confirm(f"Revoke {key_id}? Everybody who uses it is locked out at once, and this cannot be undone.", yes=yes)
    with open_database(data_dir) as database:
        key = _describe_key(keys.revoke(database, key_id))
    output.show(key, f"{key_id} revoked", as_json=as_json)


def _describe_key(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "tenant": key.tenant_id,
        "role": key.role.value,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
