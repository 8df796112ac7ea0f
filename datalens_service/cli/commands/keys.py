"""`datalens keys` and `datalens tenants`, of a service with its data folder on this machine."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from datalens_service.base.errors import NotFound
from datalens_service.cli import options, output
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.review import confirm
from datalens_service.cli.service import load_service_settings

if TYPE_CHECKING:
    from datalens_service.base.settings import Settings
    from datalens_service.store.access.keys import ApiKey
    from datalens_service.store.access.tenants import Tenant
    from datalens_service.store.database import Database


RoleName = Literal["owner", "operator", "steward", "consumer"]
"""Roles of keys, as `store.access.roles.Role`, which would import the database at every start of a command."""

app = typer.Typer(help="API keys; for the operator, on the machine of the database.", no_args_is_help=True)
tenants_app = typer.Typer(help="Tenants; for the operator, on the machine of the database.", no_args_is_help=True)


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


@tenants_app.command(name="create")
def create_tenant(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Make a tenant. It has no keys yet: `datalens keys create --tenant NAME`."""
    from datalens_service.store.access import tenants

    with open_database(data_dir) as database:
        tenant = _describe_tenant(tenants.create(database, name))
    output.show(tenant, tenant["id"], as_json=as_json)


@tenants_app.command(name="list")
def list_tenants(data_dir: options.DataDir = options.DEFAULT_DATA_DIR, as_json: options.AsJson = False) -> None:
    """List the tenants of this installation."""
    from datalens_service.store.access import tenants

    with open_database(data_dir) as database:
        items = [_describe_tenant(tenant) for tenant in tenants.list_tenants(database)]
    output.show_items(items, ("id", "name", "created_at", "state"), as_json=as_json)


@tenants_app.command()
def quotas(
    tenant: Annotated[str, typer.Argument(help="Name or id of the tenant.")],
    most_bytes: Annotated[
        int | None,
        typer.Option("--bytes", parser=build_integer_parser(0), help="Most bytes of its records and uploads."),
    ] = None,
    most_datasets: Annotated[
        int | None, typer.Option("--datasets", parser=build_integer_parser(0), help="Most data sets.")
    ] = None,
    most_jobs: Annotated[
        int | None, typer.Option("--jobs", parser=build_integer_parser(0), help="Most jobs and audits at once.")
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        typer.Option("--requests-per-minute", parser=build_integer_parser(1), help="Most requests of all its keys."),
    ] = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Take away those that are not named.")] = False,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Show what a tenant may have at once, and set what is named."""
    from datalens_service.store.access import access_log, tenants
    from datalens_service.store.access import quotas as store

    asked = (most_bytes, most_datasets, most_jobs, requests_per_minute)
    with open_database(data_dir) as database:
        found = tenants.find(database, tenant)
        before = store.Quotas() if no_limits else store.read_own(database, found.id)
        pairs = zip(vars(before).values(), asked, strict=True)
        now = store.Quotas(*(old if new is None else new for old, new in pairs))
        if no_limits or any(one is not None for one in asked):
            store.change(database, found.id, now, actor=access_log.LOCAL)
        now = store.read(database, found.id)
    facts = "\n".join(f"{name}: {'no limit' if limit is None else f'{limit:,}'}" for name, limit in vars(now).items())
    output.show({"tenant_id": found.id, **vars(now)}, facts, as_json=as_json)


def _describe_tenant(tenant: Tenant) -> dict[str, Any]:
    state = "removed" if tenant.removed_at else "being removed" if tenant.removing_since else "open"
    return {"id": tenant.id, "name": tenant.name, "created_at": tenant.created_at.isoformat(), "state": state}


@contextmanager
def open_database(data_dir: Path) -> Generator[Database]:
    """The database of the service whose data folder is `data_dir`."""
    from datalens_service.adapters.startup import connect

    with _opened(data_dir, connect) as database:
        yield database


@contextmanager
def open_doubtful_database(data_dir: Path) -> Generator[Database]:
    """The same, also if the guards of its journals are gone: to be read alone."""
    from datalens_service.adapters.startup import connect_to_read

    with _opened(data_dir, connect_to_read) as database:
        yield database


@contextmanager
def _opened(data_dir: Path, connect: Callable[[Settings], Database]) -> Generator[Database]:
    settings = load_service_settings(data_dir)
    # A mistyped folder must not become an empty installation.
    if not settings.database_url and not (data_dir / "datalens.db").exists():
        raise NotFound(f"There is no database in {data_dir}: name the folder that `datalens serve` uses.")
    database = connect(settings)
    try:
        yield database
    finally:
        database.dispose()


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
