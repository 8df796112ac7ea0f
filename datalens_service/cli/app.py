"""The commands, and what happens when one fails."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import datalens_service
from datalens_service.base.wording import Voice, spoken_to
from datalens_service.cli import output
from datalens_service.cli.commands import (
    audit,
    audits,
    datasets,
    demo,
    downloads,
    encoders,
    jobs,
    journal,
    keys,
    plan,
    plugins,
    predict,
    prepare,
    releases,
    retention,
    serve,
    tenants,
    train,
    verify,
)
from datalens_service.cli.failures import HELP, ExitCode, reported
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import AsJson
from datalens_service.cli.output import prepare_streams, unheard

_AS_JSON = "datalens.wants_json"


class _Commands(TyperGroup):
    """Turns every failure of a command into one sentence (or a JSON object) and an exit code."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the program, which speaks of options from here on."""
        prepare_streams()
        with unheard(), spoken_to(Voice.COMMAND_LINE):
            return super().main(*arguments, **named)
        # Only wrong usage is said out here.
        raise SystemExit(ExitCode.BAD_INPUT)

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **named: Any) -> Any:
        """Remember how failures are to be shown, before anything can fail."""
        as_json = "--json" in args
        with reported(as_json=as_json):
            context = super().make_context(info_name, args, *others, **named)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        with reported(as_json=ctx.meta[_AS_JSON]):
            return super().invoke(ctx)


app = Commands(
    name="datalens",
    cls=_Commands,
    help="Turn private labelled images into synthetic images or a classifier, with a privacy guarantee.",
    epilog=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(datalens_service.__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn private labelled images into synthetic images or a classifier, with a privacy guarantee."""


app.command()(serve.serve)
app.command()(demo.demo)
app.command()(train.train)
app.command()(plan.plan)
app.command()(predict.predict)
app.command()(predict.individual_epsilon)
app.command()(prepare.prepare)
app.command()(audit.audit)
app.command()(verify.verify)
for command in (
    downloads.files,
    downloads.download,
    downloads.report,
    downloads.evidence,
    downloads.registry,
    downloads.push,
):
    jobs.app.command()(command)
app.add_typer(jobs.app, name="jobs")
app.add_typer(releases.app, name="releases")
app.add_typer(audits.app, name="audits")
app.add_typer(datasets.app, name="datasets")
app.add_typer(encoders.app, name="encoders")
app.add_typer(journal.app, name="journal")
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")
app.add_typer(retention.app, name="retention")
app.add_typer(plugins.app, name="plugins")


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of the package."""
    output.show({"version": datalens_service.__version__}, datalens_service.__version__, as_json=as_json)
