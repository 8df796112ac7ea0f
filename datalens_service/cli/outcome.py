"""Tells of the end of `train` and `demo`: an interruption, where everything is, what was spent, what came of it."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from pydantic import BaseModel, Field
from rich.console import Group, RenderableType

from datalens_service.base.audience import FileAudience
from datalens_service.base.wording import spoken
from datalens_service.cli import output
from datalens_service.evaluation import METRICS
from datalens_service.evaluation.measures import STATUS_LABELS, written
from datalens_service.jobs.embedded_run import EmbeddedRun
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.report.verdict import Figures, judge
from datalens_service.services.pricing import JobPrivacy
from datalens_service.spec import PlanSummary
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.subprocesses.sampling import PACKED_IMAGES


class TrainingSummary(BaseModel):
    """The end of a run; what `--json` prints."""

    job_id: str
    state: JobState
    method: str
    out: Path
    files: dict[str, Path]
    audiences: dict[str, FileAudience] = Field(description="For whom each file is, by its name.")
    privacy: JobPrivacy
    measures: list[dict[str, Any]]
    person_caveats: list[str] = Field(description="Persons in training images and in test images; for the owner alone.")
    verdict: str = Field(description="How useful the result is; for the owner alone. Empty without one.")
    error: dict[str, Any] | None


def build_outcome(embedded_run: EmbeddedRun, dataset: StoredDataset, job: Job) -> TrainingSummary:
    """Deliver the files of a job that succeeded, and put the rest together."""
    files = embedded_run.deliver(job, dataset) if job.state is JobState.SUCCEEDED else {}
    price = PlanSummary.model_validate(job.price)
    report = json.loads(files["report.json"].read_text(encoding="utf-8")) if files else None
    return TrainingSummary(
        job_id=job.id,
        state=job.state,
        method=job.spec["method"]["name"],
        out=embedded_run.out,
        files=files,
        audiences=embedded_run.list_audiences(job) if files else {},
        privacy=JobPrivacy.from_job(job, price.about(dataset.schema)),
        measures=[] if report is None else report["measures"],
        person_caveats=[] if report is None else report.get("person_caveats", []),
        verdict="" if report is None else judge(Figures.from_report(report)).sentence,
        error=spoken(job.error),
    )


def render_outcome(outcome: TrainingSummary) -> RenderableType:
    """The text that a person sees."""
    if outcome.error is not None or not outcome.files:
        reason = (outcome.error or {}).get("detail", "")
        return output.format_facts({"state": outcome.state.value, "why": reason, **_describe_privacy(outcome)})
    facts = {**_describe_files(outcome), **_describe_privacy(outcome)}
    verdict = {"for you alone": "\n".join([outcome.verdict, *outcome.person_caveats])}
    return Group(output.format_facts(verdict), "", output.format_facts(facts), "", _render_metrics(outcome))


def _describe_files(outcome: TrainingSummary) -> dict[str, object]:
    names = {
        "images": (PACKED_IMAGES, "synthetic.parquet"),
        "sample grid": ("samples.png",),
        "report (for you)": ("report.html", "report.json"),
        "report (to share)": ("report-releasable.html", "report-releasable.json"),
        "evidence (for you)": ("evidence.html",),
        "evidence (to share)": ("evidence-releasable.html", "registry.yaml"),
        "generator": ("generator.safetensors",),
        "classifier": ("classifier.safetensors", "classifier.onnx"),
        "proof of ε (to share)": ("privacy.json",),
        "key that signed (to share)": ("signing-key.pem",),
        "journal of the account (for you)": ("account-proof.json",),
    }
    present = {title: [name for name in file_names if name in outcome.files] for title, file_names in names.items()}
    return {
        title: "\n".join(str(outcome.files[name]) for name in file_names)
        for title, file_names in present.items()
        if file_names
    }


def _describe_privacy(outcome: TrainingSummary) -> dict[str, object]:
    privacy = outcome.privacy
    return {
        "ε spent": f"{privacy.epsilon_spent} of {privacy.epsilon_limit}",
        "δ": privacy.delta,
        "guarantee": privacy.guarantee,
    }


def _render_metrics(outcome: TrainingSummary) -> RenderableType:
    """Write one line per metric."""
    if not outcome.measures:
        return "Nothing was measured: the data set has no test split, or you gave --no-evaluation."
    rows = [
        (METRICS[measure["name"]].title, written(measure["value"], measure["unit"]), STATUS_LABELS[measure["status"]])
        for measure in outcome.measures
    ]
    return output.format_table(("accuracy on real test images, and fidelity", "", ""), rows)


_STDERR: Final = 2
_MESSAGE: Final = "\nStopping as soon as this step is done; Ctrl-C again stops at once.\n"


class Interruption:
    """Takes the first Ctrl-C within its block as a request; the second raises KeyboardInterrupt as ever.

    Only for the main thread. A process that was started with SIGINT ignored, as in the background of a shell,
    goes on ignoring it.
    """

    def __init__(self) -> None:
        self._requested = False
        self._installed = False

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle_signal)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Call between two steps.

        Raises:
            ShutdownRequested: Somebody pressed Ctrl-C.
        """
        if self._requested:
            raise ShutdownRequested

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Not through a stream, which the interrupted code may be writing to. If nobody hears it, it stops all the same.
        with suppress(OSError):
            os.write(_STDERR, _MESSAGE.encode())
