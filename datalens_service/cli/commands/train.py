"""`datalens train`: a data set in, synthetic images or a classifier and a report out, without a service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup, join_process_group, read_rendezvous
from datalens_service.base.progress import Phase
from datalens_service.cli import options, output, review
from datalens_service.cli.commands.plan import build_forecast, describe_expectation
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.public_file import PublicFile
from datalens_service.cli.specs import ReadingOptions, SpecOptions, build_choices

if TYPE_CHECKING:
    from datalens_service.data.dataset import Schema, Upload
    from datalens_service.data.intake.sandbox.exchange import Counts
    from datalens_service.data.notices import Notice
    from datalens_service.jobs.embedded_run import EmbeddedRun
    from datalens_service.store.datasets.datasets import StoredDataset
    from datalens_service.store.jobs.jobs import Job

PRIVATE_READS = ("reading the upload",)


def train(
    data: options.Data,
    spec_options: SpecOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for everything; the ledger of these records stays in its folder 'private'.",
            file_okay=False,
        ),
    ],
    reading: ReadingOptions,
    confirm_classes: options.ConfirmClasses = False,
    leave_out_constant_images: options.LeaveOutConstantImages = False,
    public_test: options.PublicTest = False,
    public_data: Annotated[
        Path | None,
        typer.Option(
            "--public-data",
            help="Public images of the same size. {public_use} The guarantee does not cover them.",
            exists=True,
        ),
    ] = None,
    public_license: options.PublicLicense = None,
    as_json: options.AsJson = False,
) -> None:
    """Train on a data set of this machine and write the synthetic images, or the classifier.

    The images are there before they are measured; --no-evaluation leaves measuring out.
    The same command again goes on where an interrupted one stopped, and shows the results of one that ended; neither
    spends anything twice. The first run's --epsilon is the budget of the folder: a further run with other settings
    gets what is left of it. Two folders for the same records are two budgets, which add up. Class names become public
    with the budget: before the first run of a folder they are shown, and you are asked. Processes that torchrun starts
    with this command share the teachers.

    What was read otherwise than you may expect is said on stderr. It depends on the images: do not pass it on.
    """
    from datalens_service.base.settings import EmbeddedSettings
    from datalens_service.data import detect, read_with_notices
    from datalens_service.data.intake.sandbox.decode import count_records
    from datalens_service.mechanisms.private_shards import run_follower

    public_choices = {"leave_out_constant_images": leave_out_constant_images, "public_test": public_test}
    choices = build_choices(vars(reading) | public_choices)
    upload, upload_notices = read_with_notices(data, choices)
    if public_license is not None and public_data is None:
        raise InvalidSpec("--public-license needs --public-data.")
    public = None if public_data is None else PublicFile.read(public_data, public_license)
    timeout_seconds = EmbeddedSettings.from_folder(out).rank_timeout_seconds
    with join_process_group(timeout_seconds, read_rendezvous()) as process_group:
        if process_group.rank:
            run_follower(process_group, upload)
        else:
            review.say_notices(upload_notices)
            confirmed = confirm_classes or upload.schema.class_names == choices.class_names
            ask = partial(_ask, upload.schema, count_records(upload, upload_notices), upload_notices, out)
            # Nothing else holds it, so that it takes no memory once it is stored.
            uploads = [upload]
            del upload
            train_upload(
                uploads.pop(),
                detect(data, choices),
                spec_options,
                out,
                as_json=as_json,
                confirm=review.skip if confirmed else cache(ask),
                process_group=process_group,
                public=public,
            )


def train_upload(
    upload: Upload,
    format_name: str,
    spec_options: SpecOptions,
    out: Path,
    *,
    as_json: bool,
    confirm: Callable[[], None],
    process_group: ProcessGroup = SINGLE_PROCESS,
    public: PublicFile | None = None,
) -> None:
    """Train in an output folder, with a progress bar, and show what there is afterwards.

    Args:
        confirm: Called before the records of a folder get their budget: returns if their class names may be public.

    Raises:
        InvalidSpec: The request does not fit the data set.
        BudgetExceeded: The folder's budget does not pay for it.
        ClientError: The class names are not confirmed.
        InvalidInput: It is of little use, and the person at the terminal does not want it.
        typer.Exit: 1, the job failed; 130, it was interrupted.
    """
    from datalens_service.cli.outcome import build_outcome, render_outcome
    from datalens_service.jobs.embedded_run import PRIVATE, open_embedded_run
    from datalens_service.services import encoders

    # Refused before a folder is made and records are copied.
    asked, schema = spec_options, upload.schema
    spec_options = asked.with_encoders(lambda path: encoders.read(path).model_dump())
    if public is not None:
        spec_options = public.check(schema, spec_options)
    spec = spec_options.build_spec(schema)
    spec.plan(schema)
    if not (out / PRIVATE).exists():
        confirm()
        forecast = build_forecast(spec, schema, spec_options.read_shares(), spec_options.purpose == "teach")
        output.say(output.format_facts(describe_expectation(forecast.model_dump(exclude={"comparison"}))))
        review.accept_low_utility(lambda: forecast.expectation.warning if forecast.expectation else "")
    with open_embedded_run(out) as embedded_run:
        dataset = embedded_run.find_or_create_dataset(upload, format_name, spec.epsilon, spec.delta, confirm)
        if public is not None:
            stored = embedded_run.find_or_create_public(public.upload, public.format_name, public.name, spec.epsilon)
            spec = replace(spec_options, public_data=stored.id).build_spec(schema)
        # Its records lie in the folder now.
        del upload
        asked.with_encoders(lambda path: encoders.keep(embedded_run.artifacts, path).model_dump())
        job = embedded_run.find_or_create_job(dataset, spec)
        if job.state.terminal:
            output.say(f"This run ended before, so nothing was spent again. Its results are in {out}.")
        job = _run_job(embedded_run, dataset, job, process_group)
        outcome = build_outcome(embedded_run, dataset, job)
    output.show(outcome, render_outcome(outcome), as_json=as_json)
    if outcome.error is not None:
        raise typer.Exit(ExitCode.JOB_FAILED)


def _ask(schema: Schema, counts: Counts, upload_notices: tuple[Notice, ...], out: Path) -> None:
    """Ask whether the class names may be public."""
    from datalens_service.services.upload_reports import ClassReview

    review.require(
        ClassReview.from_counts(schema, counts, upload_notices),
        f"Nothing was published or charged, and {out} got no budget: repeat the command with --confirm-classes, or "
        "name other classes with --class-names.",
    )


def _run_job(embedded_run: EmbeddedRun, dataset: StoredDataset, job: Job, process_group: ProcessGroup) -> Job:
    from datalens_service.cli.outcome import Interruption
    from datalens_service.cli.progress import PhaseBars
    from datalens_service.jobs.job_watch import ShutdownRequested

    bars, interruption = PhaseBars(), Interruption()

    @cache
    def deliver() -> None:
        """Put what was released into its folder, once."""
        embedded_run.deliver(job, dataset)
        ready, measured = ("images are", "they are") if job.result == "generator" else (f"{job.result} is", "it is")
        bars.note(f"The {ready} ready in {embedded_run.out}; {measured} still being measured.")

    def observe(phase: Phase, value: int, maximum: int) -> None:
        bars.observe(phase, value, maximum)
        if phase == Phase.EVALUATING:
            deliver()
        interruption.check()

    try:
        with bars, interruption:
            return embedded_run.run_job(job, observe, process_group)
    except ShutdownRequested:
        output.say("Stopped. The same command continues from here and pays for nothing twice.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
