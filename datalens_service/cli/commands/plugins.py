"""`datalens plugins`: methods, extractors and generators of other packages, and checks of their contracts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from datalens_service.base.errors import InvalidInput
from datalens_service.cli import options, output
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.specs import SpecOptions

if TYPE_CHECKING:
    from datalens_service.contracts.methods import Finding

app = typer.Typer(help="Methods, extractors and generators of other packages.", no_args_is_help=True)


PluginKind = Literal["method", "extractor", "generator"]


@app.command(name="list")
def list_(as_json: options.AsJson = False) -> None:
    """List installed plug-ins and generators with their packages or folders; imports none."""
    from datalens_service.base.plugins import EXTRACTORS, METHODS, find_origin, list_plugins
    from datalens_service.models.generators.installed import list_installed

    groups = {"method": METHODS, "extractor": EXTRACTORS}
    columns = ("name", "kind", "package", "object")
    items = [
        dict(zip(columns, (entry.name, kind, str(find_origin(entry.name, group)), entry.value), strict=True))
        for kind, group in groups.items()
        for entry in list_plugins(group)
    ]
    items += [
        dict(zip(columns, (one.name, "generator", one.package, one.place), strict=True)) for one in list_installed()
    ]
    output.show_items(items, columns, as_json=as_json)


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Name of the plug-in.")],
    kind: Annotated[PluginKind, typer.Option("--kind", help="Kind of plug-in.")] = "method",
    settings: options.Settings = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps", parser=build_integer_parser(1), help="Number of steps that are run on neighbouring data."
        ),
    ] = 4,
    as_json: options.AsJson = False,
) -> None:
    """Try the contract of a plug-in on made-up records; exit code 1: it breaks the contract. Passing is no proof.

    Of a method: prices, charges, and what a unit moves. Name parameters that make it quick: --set steps=3. Of an
    extractor: features that are finite and repeatable, of each image by itself. Of a generator: images of the right
    kind that repeat with their seed and differ without it.
    """
    if kind != "method" and settings:
        raise InvalidInput(f"--set is about methods; the {kind} {name} has no parameters.")
    findings = _check_method(name, settings or [], steps) if kind == "method" else _check_other(name, kind)
    broken = [finding for finding in findings if finding.complaint]
    lines = [f"{'broken' if one.complaint else 'holds':6}  {one.point}  {one.complaint or ''}" for one in findings]
    items = [{"point": one.point, "complaint": one.complaint} for one in findings]
    output.show({"holds": not broken, "points": items}, Text("\n".join(map(str.rstrip, lines))), as_json=as_json)
    if broken:
        raise typer.Exit(ExitCode.JOB_FAILED)


def _check_method(name: str, settings: list[str], steps: int) -> list[Finding]:
    from datalens_service.base.plugins import load_plugin
    from datalens_service.contracts.methods import EPSILON, SCHEMA, check_method
    from datalens_service.methods.registered import check_plugin, check_source

    check_source(name, check_plugin(name, load_plugin(name)))
    spec = SpecOptions(epsilon=EPSILON, method=name, settings=settings).build_spec(SCHEMA)
    return list(check_method(spec.method, steps))


def _check_other(name: str, kind: PluginKind) -> list[Finding]:
    from datalens_service.base.plugins import EXTRACTORS, load_plugin
    from datalens_service.contracts.plugins import check_extractor, check_generator
    from datalens_service.models.generators.installed import open_installed

    if kind == "extractor":
        return list(check_extractor(load_plugin(name, EXTRACTORS)))
    return list(check_generator(partial(open_installed, name)))
