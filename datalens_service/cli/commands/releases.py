"""`datalens releases`: what was released, and links by which partners get it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.base.clock import utc_now  # noqa: TID251 (the service decides when a link has ended)
from datalens_service.cli import options, output
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.review import confirm
from datalens_service.cli.service import SERVICE, Service, find_release

if TYPE_CHECKING:
    from datalens_service.client import ReleaseInfo

app = Commands(help="What was released, and links by which partners get it.", no_args_is_help=True)

ReleaseId = Annotated[str, typer.Argument(help="Id of the release, gen_… or clf_…, or of its job, or its title.")]


@app.command(name="list")
def list_(service: Service = SERVICE) -> None:
    """List releases, newest first."""
    with service.connect() as client:
        items = list(client.releases())
    rows = [
        (one.id, one.title, one.kind, len(one.class_names), _tell_licence(one), one.job_id or "imported")
        for one in items
    ]
    columns = ("id", "title", "kind", "classes", "licence", "job")
    output.show_items(items, columns, rows, as_json=service.as_json)


@app.command()
def show(release_id: ReleaseId, service: Service = SERVICE) -> None:
    """Show what a release is and promises."""
    with service.connect() as client:
        release = client.get_release(find_release(client, release_id))
    _show_release(release, service)


@app.command()
def label(
    release_id: ReleaseId,
    title: Annotated[
        str | None, typer.Option("--title", help="Public name; partners read it. Empty takes it away.")
    ] = None,
    license: Annotated[
        str | None, typer.Option("--license", help="SPDX id, for example CC-BY-4.0; other chooses none.")
    ] = None,
    service: Service = SERVICE,
) -> None:
    """Give a release a public title and a licence."""
    with service.connect() as client:
        release = client.update_release(find_release(client, release_id), title=title, license=license)
    _show_release(release, service)


@app.command()
def share(
    release_id: ReleaseId,
    partner: Annotated[str, typer.Option("--partner", help="Whom it is for; only you and your colleagues see this.")],
    days: Annotated[
        int | None,
        typer.Option("--days", parser=build_integer_parser(1, 36_500), help="Days until it ends; default: never."),
    ] = None,
    service: Service = SERVICE,
) -> None:
    """Make a link by which one partner gets one release without a key, and print its address, once."""
    expires_at = None if days is None else utc_now() + timedelta(days=days)
    with service.connect() as client:
        made = client.share_release(find_release(client, release_id), partner=partner, expires_at=expires_at)
    service.show(made, made.url)


@app.command()
def links(release_id: ReleaseId, service: Service = SERVICE) -> None:
    """List the links to a release, with whom each is for and when it was last used."""
    with service.connect() as client:
        items = client.release_links(find_release(client, release_id))
    rows = [
        (one.id, one.partner, "ended" if one.ended else "valid", one.expires_at or "never", one.last_used_at or "never")
        for one in items
    ]
    output.show_items(items, ("id", "partner", "state", "ends", "last used"), rows, as_json=service.as_json)


@app.command()
def revoke(
    link_id: Annotated[str, typer.Argument(help="Id of the link, lnk_….")],
    yes: options.Yes = False,
    service: Service = SERVICE,
) -> None:
    """End a link at once. Asks first."""
    confirm(f"Revoke {link_id}? Its partner can open it no more, and this cannot be undone.", yes=yes)
    with service.connect() as client:
        link = client.revoke_release_link(link_id)
    service.show(link, f"{link_id} revoked")


def _tell_licence(release: ReleaseInfo) -> str:
    return "none was chosen" if release.license == "other" else release.license


def _show_release(release: ReleaseInfo, service: Service) -> None:
    facts = {
        "release": release.id,
        "title": release.title,
        "classes": ", ".join(release.class_names),
        "images": f"{release.width} × {release.height} pixels",
        "licence": _tell_licence(release),
        "what it is": release.made,
        "good for": release.usefulness,
        "promised": release.promise or "unknown: this model was imported",
        "guarantee": release.guarantee,
    }
    service.show(release, output.format_facts({name: fact for name, fact in facts.items() if fact}))
