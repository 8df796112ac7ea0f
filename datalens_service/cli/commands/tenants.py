"""`datalens tenants export` and `remove`: what a tenant owns as one archive, and its removal with a receipt."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.cli import options, output, review
from datalens_service.cli.commands.keys import open_database
from datalens_service.cli.new_file import private_file
from datalens_service.cli.service import load_service_settings

if TYPE_CHECKING:
    from datalens_service.base.settings import Settings
    from datalens_service.store.access.tenants import Tenant
    from datalens_service.store.database import Database

PRIVATE_READS = ("reading the upload", "attacks")

_LOOK_SECONDS: Final = 1.0

Named = Annotated[str, typer.Argument(help="Name or id of the tenant.", metavar="TENANT")]


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
