"""`datalens tenants`: make, limit, export and remove tenants of a service with its data folder on this machine."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.cli import options, output, review
from datalens_service.cli.new_file import private_file
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.service import load_service_settings, open_database

if TYPE_CHECKING:
    from datalens_service.base.settings import Settings
    from datalens_service.store.access.tenants import Tenant
    from datalens_service.store.database import Database

PRIVATE_READS = ("reading the upload", "attacks")

_LOOK_SECONDS: Final = 1.0

app = typer.Typer(help="Tenants; for the operator, on the machine of the database.", no_args_is_help=True)

Named = Annotated[str, typer.Argument(help="Name or id of the tenant.", metavar="TENANT")]


@app.command(name="create")
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


@app.command(name="list")
def list_tenants(data_dir: options.DataDir = options.DEFAULT_DATA_DIR, as_json: options.AsJson = False) -> None:
    """List the tenants of this installation."""
    from datalens_service.store.access import tenants

    with open_database(data_dir) as database:
        items = [_describe_tenant(tenant) for tenant in tenants.list_tenants(database)]
    output.show_items(items, ("id", "name", "created_at", "state"), as_json=as_json)


@app.command()
def quotas(
    tenant: Named,
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


@app.command()
def export(
    tenant: Named,
    out: Annotated[Path, typer.Option("--out", help="File of the archive, for example lab.tar.", dir_okay=False)],
    force: options.Force = False,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Write everything that a tenant owns into one tar archive: private records, results, reports, journal, budgets.

    README.txt in it says what lies where; `sha256sum -c SHA256SUMS` checks it. Take care of it as of the records.
    """
    from datalens_service.services import tenant_export
    from datalens_service.store.access import tenants
    from datalens_service.store.datasets.artifacts import ArtifactStore

    settings = load_service_settings(data_dir)
    with private_file(out, force=force) as path, open_database(data_dir) as database, path.open("xb") as file:
        found = tenants.find(database, tenant)
        artifacts = ArtifactStore(database, settings.data_dir, settings.artifact_url)
        sums = tenant_export.export_tenant(database, artifacts, settings, found, file)
    shown = {"tenant_id": found.id, "file": str(out), "files": len(sums), "bytes": out.stat().st_size}
    output.show(shown, f"{out}: {len(sums):,} files of {found.name}", as_json=as_json)


@app.command()
def remove(
    tenant: Named,
    yes: options.Yes = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="File of the receipt; default: it is printed.", dir_okay=False)
    ] = None,
    force: options.Force = False,
    data_dir: options.DataDir = options.DEFAULT_DATA_DIR,
    as_json: options.AsJson = False,
) -> None:
    """Remove a tenant: keys, sessions, persons, data sets, results and files. Its budgets stay spent.

    Says what leaves and asks for the name once more. Jobs are cancelled and waited for. Repeat it if it is interrupted,
    or leave the rest to the service. Prints the signed receipt, which `datalens verify` checks.
    """
    # A name that is taken is refused before anything leaves.
    with nullcontext() if out is None else private_file(out, force=force) as path:
        name, receipt = _remove(tenant, data_dir, yes=yes)
        text = json.dumps(receipt, ensure_ascii=False, indent=2)
        if path is not None:
            path.write_text(text)
            text = f"{name} is removed; the receipt is {out}"
    output.show(receipt, text, as_json=as_json)


def _remove(tenant: str, data_dir: Path, *, yes: bool) -> tuple[str, dict[str, Any]]:
    """Remove a tenant once its name is typed again; return name and receipt."""
    from datalens_service.services import tenant_removal
    from datalens_service.store.access import tenants

    settings = load_service_settings(data_dir)
    with open_database(data_dir) as database:
        found = tenants.find(database, tenant)
        if found.removing_since is None:
            with database.session() as session:
                leaving = tenant_removal.take_stock(session, found.id)
            counted = {name: len(value) if isinstance(value, tuple) else value for name, value in leaving}
            output.say("\n".join(f"{name}: {count:,}" for name, count in counted.items()))
            review.confirm_name(found.name, yes=yes)
            tenant_removal.begin(database, found.id, actor="local")
        return found.name, _wait_for_removal(database, settings, found).receipt or {}


def _wait_for_removal(database: Database, settings: Settings, tenant: Tenant) -> Tenant:
    from datalens_service.services import tenant_removal
    from datalens_service.store.datasets.artifacts import ArtifactStore

    artifacts = ArtifactStore(database, settings.data_dir, settings.artifact_url)
    while (removed := tenant_removal.proceed(database, artifacts, settings, tenant.id)) is None:
        output.say("A job has not ended yet; waiting for it.")
        time.sleep(_LOOK_SECONDS)
    return removed


def _describe_tenant(tenant: Tenant) -> dict[str, Any]:
    state = "removed" if tenant.removed_at else "being removed" if tenant.removing_since else "open"
    return {"id": tenant.id, "name": tenant.name, "created_at": tenant.created_at.isoformat(), "state": state}
