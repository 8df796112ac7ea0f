"""The commands, and what happens when one fails."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from datalens_service import __version__
from datalens_service.cli import (
    audit,
    audits,
    datasets,
    demo,
    downloads,
    individual_epsilon,
    jobs,
    keys,
    output,
    plan,
    plugins,
    predict,
    prepare,
    push,
    serve,
    tenants,
    train,
    verify,
)
from datalens_service.cli.exits import HELP, ExitCode, get_exit_code
from datalens_service.cli.options import AsJson
from datalens_service.client import ClientError
from datalens_service.errors import DatalensError
from datalens_service.voices import Voice, spoken_to

_AS_JSON = "datalens.wants_json"
_FILE_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class _Commands(TyperGroup):
    """Turns every deliberate error into one sentence (or a JSON object) and an exit code."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Speak of options from here on."""
        with spoken_to(Voice.COMMAND_LINE):
            return super().main(*args, **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember how errors are to be shown, before anything can fail."""
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        as_json: bool = ctx.meta[_AS_JSON]
        try:
            return super().invoke(ctx)
        except (DatalensError, ClientError) as error:
            output.show_error(output.build_problem(error), as_json=as_json)
            raise typer.Exit(get_exit_code(error.slug)) from error
        except _FILE_ERRORS as error:
            detail = f"{error.strerror}: {error.filename}"
            output.show_error({"code": "file", "title": "File not usable", "detail": detail}, as_json=as_json)
            raise typer.Exit(ExitCode.BAD_INPUT) from error
        except typer.TyperException as error:
            if not as_json:
                raise
            problem = {"code": "usage", "title": "Wrong usage", "detail": error.format_message()}
            output.show_error(problem, as_json=True)
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    name="datalens",
    cls=_Commands,
    help="Private labelled images in, synthetic images or a classifier with a privacy guarantee out.",
    epilog=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Private labelled images in, synthetic images or a classifier with a privacy guarantee out."""


app.command()(serve.serve)
app.command()(demo.demo)
app.command()(train.train)
app.command()(plan.plan)
app.command()(predict.predict)
app.command()(individual_epsilon.individual_epsilon)
app.command()(prepare.prepare)
app.command()(audit.audit)
app.command()(verify.verify)
for command in (downloads.files, downloads.download, downloads.report, push.push):
    jobs.app.command()(command)
app.add_typer(jobs.app, name="jobs")
app.add_typer(audits.app, name="audits")
app.add_typer(datasets.app, name="datasets")
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")
app.add_typer(plugins.app, name="plugins")


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    output.show({"version": __version__}, __version__, as_json=as_json)
