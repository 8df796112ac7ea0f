"""`datalens audits`: attacks by a service, on its datasets and on what its jobs released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.parsing import decimal_text
from datalens_service.cli import options, output
from datalens_service.cli.commands.audit import ATTACKS_HELP, GROUPS_HELP, format_result, parse_groups, say_notes
from datalens_service.cli.commands.jobs import build_spec
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.new_file import private_file
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import build_integer_parser, parse_number, refuse_unused
from datalens_service.cli.service import SERVICE, Service, find_dataset, find_job
from datalens_service.cli.specs import SpecOptions

if TYPE_CHECKING:
    from datalens_service.client import AuditInfo, Client

app = Commands(help="Attacks on methods and released models, for the owner alone.", no_args_is_help=True)

AuditId = Annotated[str, typer.Argument(help="Id of the audit, aud_….")]
_NOTICE = "These figures depend on your records: do not pass them on."


@app.command()
def submit(
    context: typer.Context,
    dataset_id: Annotated[str | None, typer.Argument(help="Data set of a rehearsal: id, ds_…, or name.")] = None,
    job_id: Annotated[str | None, typer.Option("--job", help="Attack what this job released.")] = None,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Rehearse a network without privacy, for comparison.")
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", parser=parse_number, help="ε of the rehearsed method.")
    ] = None,
    method: options.MethodName = None,
    preset: options.PresetName = None,
    settings: options.Settings = None,
    attacks: Annotated[list[str] | None, typer.Option("--attack", help=ATTACKS_HELP)] = None,
    groups: Annotated[list[str] | None, typer.Option("--group", help=GROUPS_HELP)] = None,
    references: Annotated[
        int, typer.Option("--references", parser=build_integer_parser(2), help="Models that never saw the candidates.")
    ] = 8,
    seed: options.Seed = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the audit; exit 1 unless it succeeds.")] = False,
    service: Service = SERVICE,
) -> None:
    """Submit an audit: a rehearsal on a data set, or an attack on what a job released. Nothing is charged."""
    if epsilon is None:
        refuse_unused(context, "method", "preset", "settings", why="belongs to a rehearsal, which needs --epsilon")
    spec_options = None if epsilon is None else SpecOptions(epsilon, None, method, preset, settings, seed=seed)
    with service.connect() as client:
        if spec_options is not None:
            spec_options = spec_options.with_encoders(client.upload_encoder)
        target = _build_target(client, dataset_id, job_id, spec_options, unprotected=unprotected)
        body = {"target": target, "references": references, "groups": parse_groups(groups), "seed": seed}
        audit = client.submit_audit(body if attacks is None else {**body, "attacks": attacks})
        if wait:
            audit = client.wait_for_audit(audit.id)
    _show(audit, service)
    if audit.state in ("failed", "cancelled"):
        raise typer.Exit(ExitCode.JOB_FAILED)


def _add_command(name: str, call: Callable[[Client, str], AuditInfo], description: str) -> None:
    """Add a command that calls the service about one audit and shows it."""

    @app.command(name=name, help=description)
    def call_and_show(audit_id: AuditId, service: Service = SERVICE) -> None:
        with service.connect() as client:
            audit = call(client, audit_id)
        _show(audit, service)


_add_command("show", lambda client, audit_id: client.get_audit(audit_id), "Show an audit and what it found.")
_add_command("cancel", lambda client, audit_id: client.cancel_audit(audit_id), "Ask an audit to stop.")


@app.command()
def picture(
    audit_id: AuditId,
    out: Annotated[Path, typer.Option("--out", help="PNG to write.", dir_okay=False)] = Path("inversion-private.png"),
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Write records and what inversion made of their gradients as a PNG. For the owner's eyes; not to be passed on."""
    with private_file(out, force=force) as path, service.connect() as client:
        client.download_audit_picture(audit_id, path)
    service.show({"path": str(out)}, str(out))


@app.command(name="list")
def list_(service: Service = SERVICE) -> None:
    """List audits, newest first."""
    with service.connect() as client:
        all_audits = list(client.audits())
    rows = [(audit.id, _describe(audit), audit.state, _strongest(audit), audit.dataset_id) for audit in all_audits]
    columns = ("id", "target", "state", "AUC", "data set")
    output.show_items(all_audits, columns, rows, as_json=service.as_json)


def _build_target(
    client: Client, dataset_id: str | None, job_id: str | None, rehearsed: SpecOptions | None, *, unprotected: bool
) -> dict[str, Any]:
    ways = (job_id is not None, unprotected, rehearsed is not None)
    if sum(ways) != 1 or (dataset_id is None) != (job_id is not None):
        raise InvalidSpec("Name a data set and --epsilon, a data set and --unprotected, or --job alone.")
    if dataset_id is None:
        return {"kind": "released", "job_id": find_job(client, job_id or "")}
    dataset_id = find_dataset(client, dataset_id)
    if rehearsed is None:
        return {"kind": "unprotected", "dataset_id": dataset_id}
    spec = build_spec(client, dataset_id, rehearsed).model_dump(mode="json")
    return {"kind": "rehearsal", "dataset_id": dataset_id, "spec": spec}


def _describe(audit: AuditInfo) -> str:
    target = audit.target
    if target["kind"] == "rehearsal":
        return f"{target['spec']['method']['name']}, ε = {decimal_text(target['spec']['epsilon'])}"
    return f"model of {target['job_id']}" if target["kind"] == "released" else "no privacy"


def _strongest(audit: AuditInfo) -> str:
    if audit.result is None:
        return ""
    areas = [one["figures"]["auc"] for one in audit.result["attacks"]]
    return f"{max(areas):.3f}" if areas else ""


def _show(audit: AuditInfo, service: Service) -> None:
    if audit.result is not None and not service.as_json:
        from datalens_service.audits.audit import AuditResult

        result = AuditResult.model_validate(audit.result)
        service.show(audit, format_result(result))
        output.say(f"{say_notes(result)} {_NOTICE}")
        return
    lines: dict[str, object] = {
        "audit": audit.id,
        "state": audit.state,
        "data set": audit.dataset_id,
        "target": _describe(audit),
        "submitted by": output.name_actor(audit.submitted_by),
    }
    if not audit.ended:
        lines["models trained"] = f"{audit.progress.value}/{audit.progress.maximum}"
    if audit.error is not None:
        lines["error"] = audit.error.get("detail", "")
    service.show(audit, output.format_facts(lines))
