"""`datalens jobs`: submit, watch, list, cancel and download on a service."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from datalens_service.cli import options, output
from datalens_service.cli.exits import ExitCode
from datalens_service.cli.numbers import integer_from
from datalens_service.cli.plan import plan_facts
from datalens_service.cli.progress import PhaseBars
from datalens_service.cli.service import connect
from datalens_service.cli.specs import SpecOptions
from datalens_service.client import Audience, Client, ClientError, Format, Job, JobHandle, PlanInfo

if TYPE_CHECKING:
    from datalens_service.spec import TrainingSpec

app = typer.Typer(help="Training jobs of a service.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(help="Id of the job, job_….")]


class FileFormat(StrEnum):
    """Formats of synthetic images."""

    NPZ = "npz"
    PARQUET = "parquet"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


_SUFFIX = {
    FileFormat.NPZ: ".npz",
    FileFormat.PARQUET: ".parquet",
    FileFormat.IMAGEFOLDER: ".zip",
    FileFormat.WEBDATASET: ".tar",
}


@app.command()
def submit(
    dataset_id: Annotated[str, typer.Argument(help="Id of the data set, ds_….")],
    epsilon: options.Epsilon,
    delta: options.Delta = None,
    method: options.MethodName = None,
    preset: options.PresetName = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    synthetic_images: options.SyntheticImages = 10_000,
    evaluate: options.Evaluate = True,
    device: options.Device = options.DeviceName.AUTO,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the price and submit nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job; exit 1 unless it succeeds.")] = False,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Submit a training job; its budget is reserved at once."""
    asked = SpecOptions(epsilon, delta, method, preset, settings or (), seed, synthetic_images, evaluate, device.value)
    with connect(url, api_key) as client:
        spec = _spec(client, dataset_id, asked)
        if dry_run:
            _show_plan(client.plan(dataset_id, spec), as_json=as_json)
            return
        job = client.submit(dataset_id, spec)
        if wait:
            job = _followed(client, job.id)
    _show_job(job, as_json=as_json)
    _fail_unless_good(job)


@app.command()
def watch(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Follow a job until it ends; exit 1 unless it succeeds. Ctrl-C stops watching, not the job."""
    with connect(url, api_key) as client:
        job = _followed(client, job_id)
    _show_job(job, as_json=as_json)
    _fail_unless_good(job)


@app.command()
def show(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Show a job as it is now."""
    with connect(url, api_key) as client:
        job = client.get_job(job_id)
    _show_job(job, as_json=as_json)


@app.command(name="list")
def list_(
    url: options.Url = options.DEFAULT_URL, api_key: options.ApiKey = "", as_json: options.AsJson = False
) -> None:
    """List jobs, newest first."""
    with connect(url, api_key) as client:
        found = list(client.jobs())
    rows = [
        (job.id, job.spec["method"]["name"], job.state, job.phase or "", job.privacy.epsilon_spent, job.dataset_id)
        for job in found
    ]
    items = [job.model_dump(mode="json") for job in found]
    columns = ("id", "method", "state", "phase", "ε spent", "data set")
    output.show({"items": items}, output.listing(columns, rows), as_json=as_json)


@app.command()
def cancel(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask a job to stop; what it has charged stays charged."""
    with connect(url, api_key) as client:
        job = client.cancel(job_id)
    _show_job(job, as_json=as_json)


@app.command()
def pause(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask a job to pause; its reservation and what it has reached stay."""
    with connect(url, api_key) as client:
        job = client.pause(job_id)
    _show_job(job, as_json=as_json)


@app.command()
def resume(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Let a paused job go on."""
    with connect(url, api_key) as client:
        job = client.resume(job_id)
    _show_job(job, as_json=as_json)


@app.command()
def files(
    job_id: JobId,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """List the files of a job, and for whom each is."""
    with connect(url, api_key) as client:
        listed = client.files(job_id)
    rows = [(file.name, file.audience, f"{file.size:,}", file.sha256) for file in listed]
    items = [file.model_dump(mode="json") for file in listed]
    output.show({"items": items}, output.listing(("name", "for", "bytes", "SHA-256"), rows), as_json=as_json)


@app.command()
def download(
    job_id: JobId,
    file_format: Annotated[FileFormat, typer.Option("--format", help="Format of the images.")] = FileFormat.NPZ,
    count: Annotated[
        int | None,
        typer.Option(
            "--n",
            parser=integer_from(1),
            help="How many; left out, what the job packed. More cost no privacy.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", parser=integer_from(0), help="Repeats a draw of its own.")
    ] = None,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="A zip that is ready to be published: with card, checksums, proof of ε.")
    ] = False,
    title: Annotated[str | None, typer.Option("--title", help="Public name of the data set, with --bundle.")] = None,
    licence: Annotated[
        str, typer.Option("--license", help="SPDX id, for example CC-BY-4.0, with --bundle; other chooses none.")
    ] = "other",
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="One file of `datalens jobs files` instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; left out, named after the job.", dir_okay=False)
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Download the synthetic images of a job, also while they are still being measured, or one of its files.

    Says for whom the file is.
    """
    if file is not None:
        _download_file(job_id, file, out or Path(f"{job_id}-{file}"), url, api_key, as_json=as_json)
        return
    path = out or Path(f"{job_id}-{file_format.value}.zip" if bundle else f"{job_id}{_SUFFIX[file_format]}")
    chosen: Format = file_format.value
    with connect(url, api_key) as client:
        if bundle:
            client.download_bundle(job_id, path, format=chosen, n=count, seed=seed, title=title, license=licence)
        else:
            client.download(job_id, path, format=chosen, n=count, seed=seed)
    _show_file(path, "anyone", as_json=as_json)


@app.command()
def report(
    job_id: JobId,
    releasable: Annotated[
        bool, typer.Option("--releasable", help="Without the figures that are for the owner only.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file to write; left out, named after the job.", dir_okay=False)
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Write the report of a succeeded job as HTML; with --json, print it."""
    audience: Audience = "releasable" if releasable else "owner"
    path = out or Path(f"{job_id}-report.html")
    with connect(url, api_key) as client:
        if as_json and out is None:
            output.show(client.report(job_id, audience=audience), "", as_json=True)
            return
        client.download_report(job_id, path, audience=audience)
    _show_file(path, "anyone" if releasable else "owner", as_json=as_json)


def _spec(client: Client, dataset_id: str, asked: SpecOptions) -> TrainingSpec:
    """Presets depend on the public schema of the data set."""
    from datalens_service.data.dataset import Schema

    declared = client.dataset(dataset_id).image_schema
    if declared is None:
        raise ClientError("state-conflict", "The object's state forbids this", "The data set is not ready yet.")
    return asked.spec(Schema.model_validate(declared.model_dump()))


def _followed(client: Client, job_id: str) -> JobHandle:
    with PhaseBars() as bars:
        for event in client.events(job_id):
            if event.phase is not None:
                bars.observe(event.phase, event.value, event.maximum, event.epsilon_spent)
            if event.type == "job.released":
                bars.note(f"The images are ready: datalens jobs download {job_id}")
    return client.get_job(job_id)


def _fail_unless_good(job: Job) -> None:
    if job.state in ("failed", "cancelled"):
        raise typer.Exit(ExitCode.JOB_FAILED)


def _show_plan(plan: PlanInfo, *, as_json: bool) -> None:
    lines = {**plan_facts(plan.cost.model_dump()), "fits": "yes" if plan.fits else "no: lower --epsilon"}
    output.show(plan, output.facts(lines), as_json=as_json)
    if not plan.fits:
        raise typer.Exit(ExitCode.BUDGET_EXCEEDED)


def _show_job(job: Job, *, as_json: bool) -> None:
    lines: dict[str, object] = {
        "job": job.id,
        "state": job.state,
        "data set": job.dataset_id,
        "method": job.spec["method"]["name"],
        "ε": f"{job.privacy.epsilon_spent} spent of {job.privacy.epsilon_limit}",
        "δ": job.privacy.delta,
    }
    if job.phase is not None and not job.ended:
        lines["phase"] = f"{job.phase} {job.progress.value}/{job.progress.maximum}"
    if job.error is not None:
        lines["error"] = job.error.get("detail", "")
    output.show(job, output.facts(lines), as_json=as_json)


def _download_file(job_id: str, name: str, path: Path, url: str, api_key: str, *, as_json: bool) -> None:
    with connect(url, api_key) as client:
        audiences = {one.name: one.audience for one in client.files(job_id)}
        client.download_file(job_id, name, path)
    _show_file(path, audiences.get(name, "owner"), as_json=as_json)


def _show_file(path: Path, audience: Literal["anyone", "owner"], *, as_json: bool) -> None:
    """What is for the owner alone is so on a shared machine, too."""
    if audience == "owner":
        path.chmod(0o600)
    shown = f"{path}\nFor the owner alone: not to be passed on." if audience == "owner" else str(path)
    output.show({"path": str(path), "bytes": path.stat().st_size, "audience": audience}, shown, as_json=as_json)
