"""`datalens jobs`: submit, watch, list and control jobs of a service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.base.clock import remaining
from datalens_service.base.parsing import decimal_text
from datalens_service.cli import options, output
from datalens_service.cli.commands.plan import USUAL_EPSILON, describe_forecast, describe_plan
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.review import accept_low_utility, confirm
from datalens_service.cli.service import SERVICE, Service, find_dataset, find_job
from datalens_service.cli.specs import SpecOptions, WantedSpecOptions
from datalens_service.client import ClientError

if TYPE_CHECKING:
    from datalens_service.client import Client, Job, JobHandle, PlanInfo, Target
    from datalens_service.client.requests import Spec
    from datalens_service.spec import TrainingSpec

app = Commands(help="Training jobs of a service.", no_args_is_help=True)


@app.command()
def submit(
    dataset_id: options.DatasetId,
    planned: WantedSpecOptions,
    accuracy: options.Accuracy = None,
    priority: options.Priority = None,
    public_data: options.PublicData = None,
    release: options.Release = "at_once",
    accept: options.AcceptLowUtility = False,
    yes: options.Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the price and submit nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job; exit 1 unless it succeeds.")] = False,
    service: Service = SERVICE,
) -> None:
    """Submit a training job; its budget is reserved at once.

    With --accuracy and without --epsilon: at the least ε that is expected to reach it, which it asks about.
    """
    if planned.epsilon is None and accuracy is None:
        raise typer.BadParameter("Name it, or the --accuracy that is wanted.", param_hint="--epsilon")
    with service.connect() as client:
        dataset_id = find_dataset(client, dataset_id)
        spec_options = replace(planned, epsilon=planned.epsilon or USUAL_EPSILON)
        if public_data is not None:
            spec_options = replace(spec_options, public_data=find_dataset(client, public_data))
        asked = spec_options.with_encoders(client.upload_encoder)
        spec, target = _state_request(client, dataset_id, asked), None
        if accuracy is not None:
            target = client.plan(dataset_id, spec, accuracy=accuracy).target
        if target is not None and planned.epsilon is None:
            spec = _state_request(client, dataset_id, replace(asked, epsilon=target.epsilon))
        if dry_run:
            _show_plan(client.plan(dataset_id, spec).model_copy(update={"target": target}), service)
            return
        warning = _say_forecast(client, dataset_id, spec, target)
        if target is not None and planned.epsilon is None:
            confirm(f"Submit the job at ε = {decimal_text(target.epsilon)}?", yes=yes)
        accept = accept or accept_low_utility(lambda: warning)
        wanted = None if release == "at_once" else release
        job = client.submit(dataset_id, spec, priority=priority, release=wanted, accept_low_utility=accept)
        if wait:
            job = _follow(client, job.id)
    _show_job(job, service)
    _exit_if_failed(job)


@app.command()
def watch(job_id: options.JobId, service: Service = SERVICE) -> None:
    """Follow a job until it ends; exit 1 unless it succeeds. Ctrl-C stops watching, not the job."""
    with service.connect() as client:
        job = _follow(client, find_job(client, job_id))
    _show_job(job, service)
    _exit_if_failed(job)


def _add_command(name: str, call: Callable[[Client, str], Job], description: str) -> None:
    """Add a command that calls the service about one job and shows the job."""

    @app.command(name=name, help=description)
    def call_and_show(job_id: options.JobId, service: Service = SERVICE) -> None:
        with service.connect() as client:
            job = call(client, find_job(client, job_id))
        _show_job(job, service)


_add_command("show", lambda client, job_id: client.get_job(job_id), "Show a job as it is now.")


@app.command(name="list")
def list_(service: Service = SERVICE) -> None:
    """List jobs, newest first."""
    with service.connect() as client:
        all_jobs = list(client.jobs())
    rows = [
        (
            one.id,
            one.name,
            _method(one),
            _state(one),
            "" if one.ended else one.phase or "",
            one.privacy.epsilon_spent,
            one.dataset_id,
        )
        for one in all_jobs
    ]
    columns = ("id", "name", "method", "state", "phase", "ε spent", "data set")
    output.show_items(all_jobs, columns, rows, as_json=service.as_json)


@app.command()
def label(
    job_id: options.JobId,
    name: options.LabelName = None,
    tags: options.LabelTags = None,
    notes: options.LabelNotes = None,
    service: Service = SERVICE,
) -> None:
    """Name, tag or annotate a job, to find it again."""
    with service.connect() as client:
        job = client.update_job(find_job(client, job_id), name=name, tags=tags, notes=notes)
    _show_job(job, service)


@app.command()
def cancel(job_id: options.JobId, yes: options.Yes = False, service: Service = SERVICE) -> None:
    """Ask a job to stop; what it has charged stays charged. Asks first."""
    question = f"Cancel {job_id}? Spent budget stays spent, and images that are not ready are lost."
    confirm(f"{question} While it runs, `datalens jobs pause` keeps both.", yes=yes)
    with service.connect() as client:
        job = client.cancel(find_job(client, job_id))
    _show_job(job, service)


_add_command(
    "pause",
    lambda client, job_id: client.pause(job_id),
    "Ask a job to pause; it keeps its reservation and its progress.",
)
_add_command("resume", lambda client, job_id: client.resume(job_id), "Let a paused job go on.")


@app.command()
def release(job_id: options.JobId, reason: options.Reason, service: Service = SERVICE) -> None:
    """Release a result that waits for a second person: not for whoever submitted the job."""
    with service.connect() as client:
        job = client.release_job(find_job(client, job_id), reason=reason)
    _show_job(job, service)


@app.command()
def withhold(job_id: options.JobId, reason: options.Reason, service: Service = SERVICE) -> None:
    """Withhold a result from everybody; nothing is refunded. Not for whoever submitted the job."""
    with service.connect() as client:
        job = client.withhold_job(find_job(client, job_id), reason=reason)
    _show_job(job, service)


def build_spec(client: Client, dataset_id: str, spec_options: SpecOptions) -> TrainingSpec:
    """The training request for a data set of the service: presets depend on its public schema."""
    from datalens_service.data.dataset import Schema

    dataset = client.dataset(dataset_id)
    if dataset.image_schema is None:
        detail = (
            f"The state of the upload is {dataset.state}, so it has no budget: `datalens datasets validation "
            f"{dataset_id}` says why. If it is review, `datalens datasets confirm {dataset_id}` opens its budget."
        )
        raise ClientError("state-conflict", "The object's state forbids this", detail)
    return spec_options.build_spec(Schema.model_validate(dataset.image_schema.model_dump()))


def _state_request(client: Client, dataset_id: str, asked: SpecOptions) -> Spec:
    """State the request; a preset goes by its name, unless parameters of what it chooses are changed here."""
    return build_spec(client, dataset_id, asked) if asked.changes_preset else asked.build_request()


def _follow(client: Client, job_id: str) -> JobHandle:
    from datalens_service.cli.progress import PhaseBars

    with PhaseBars() as bars:
        for event in client.events(job_id):
            if event.phase is not None:
                bars.observe(event.phase, event.value, event.maximum, event.epsilon_spent)
            if event.type == "job.released":
                bars.note(_tell_ready(client.get_job(job_id)))
    return client.get_job(job_id)


def _tell_ready(job: Job) -> str:
    if job.approval is not None and job.approval.state != "released":
        return "The result is ready, and waits for a second person."
    return f"The release is ready: {_download_command(job)}"


def _download_command(job: Job) -> str:
    return f"datalens jobs download {job.id}{' --format onnx' if job.links.get('classifier') else ''}"


def _exit_if_failed(job: Job) -> None:
    if job.state in ("failed", "cancelled"):
        raise typer.Exit(ExitCode.JOB_FAILED)


def _say_forecast(client: Client, dataset_id: str, spec: Spec, target: Target | None) -> str:
    """Print what is expected of a job, and return the warning of its plan."""
    try:
        plan = client.plan(dataset_id, spec)
    except ClientError:
        # The submission, which was asked for, says what is wrong.
        return ""
    said = plan.model_copy(update={"target": target}).model_dump(exclude={"comparison"})
    output.say(output.format_facts(describe_forecast(said)))
    return plan.expectation.warning if plan.expectation else ""


def _show_plan(plan: PlanInfo, service: Service) -> None:
    # It brings scipy, which help does without.
    from datalens_service.privacy.guarantee import advise_on_budget

    expected = describe_forecast(plan.model_dump())
    budget = plan.budget
    advice = advise_on_budget(budget.epsilon_remaining, budget.epsilon_reserved)
    fits = {"fits": "yes" if plan.fits else f"no: {advice}"}
    lines = expected | describe_plan(plan.cost.model_dump()) | fits
    service.show(plan, output.format_facts(lines))
    if not plan.fits:
        raise typer.Exit(ExitCode.BUDGET_EXCEEDED)


def _method(job: Job) -> str:
    return str(job.spec["method"]["name"])


def _state(job: Job) -> str:
    """Name the state of a job and, where a second person decides about its result, that of the result."""
    if job.approval is None or job.state != "succeeded":
        return job.state
    return f"{job.state}, {'waits for a second person' if job.approval.state == 'waiting' else job.approval.state}"


def _show_job(job: Job, service: Service) -> None:
    lines: dict[str, object] = {
        "job": job.id,
        "name": job.name,
        "state": _state(job),
        "data set": job.dataset_id,
        "submitted by": output.name_actor(job.submitted_by),
        "method": _method(job),
        "ε": f"{job.privacy.epsilon_spent} spent of {job.privacy.epsilon_limit}",
        "δ": job.privacy.delta,
        **({"guarantee": job.privacy.guarantee} if job.privacy.guarantee else {}),
    }
    if job.phase is not None and not job.ended:
        lines["phase"] = f"{job.phase} {job.progress.value}/{job.progress.maximum}"
    if job.approval is not None and job.approval.reason:
        lines["reason"] = job.approval.reason
    if job.waiting_reason:
        lines["waits"] = job.waiting_reason
    if job.progress.eta_seconds is not None:
        lines["left"] = remaining(job.progress.eta_seconds)
    if job.error is not None:
        lines["error"] = job.error.get("detail", "")
    service.show(job, output.format_facts(lines))
