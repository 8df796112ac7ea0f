"""Views of how good the result of a job is: private figures for the owner, releasable ones for others."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.rendering import Visitor
from datalens_service.base.errors import NotFound
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.measures import ConfusionTable
from datalens_service.planning.expectations import expect
from datalens_service.planning.expected_results import Expectation
from datalens_service.report.verdict import Figures
from datalens_service.services.stored_requests import read_spec
from datalens_service.store.access.roles import Scope
from datalens_service.store.jobs.jobs import Job

_HEADLINES: Final = ("accuracy", "classifier_accuracy")
_OWNER: Final = "owner"
_LARGE: Final = 999.5
"""From here on, three digits would need an exponent."""
_WORDS: Final = {
    **dict.fromkeys(("fid", "kid"), ("FID", "extractor")),
    **dict.fromkeys(("precision", "recall", "score"), ("extractor",)),
}
"""Words of the glossary by the first word of the name of a measure; all other measures are accuracies."""


class Figure(NamedTuple):
    """A row of the table.

    Attributes:
        value: With its unit, and its spread over seeds where there is one.
        interval: Interval of the mean over seeds, where there are enough.
    """

    title: str
    meaning: str
    value: str
    real: str
    private: bool
    words: tuple[str, ...]
    interval: str = ""


class Quality(NamedTuple):
    """Figures of quality on the page of a job.

    Attributes:
        caveats: Persons in training images and in test images; of the owner alone.
    """

    figures: tuple[Figure, ...]
    caveats: tuple[str, ...]
    expectation: Expectation
    private: bool


def quality_of_job(services: Services, visitor: Visitor, job: Job, schema: Schema) -> Quality | None:
    """Figures of a job that has ended; None where there are none."""
    figures = tuple(_figure(measure) for measure in _measures(services, visitor, job))
    caveats = tuple((_own_report(services, visitor, job) or {}).get("person_caveats", ()))
    if not figures and not caveats:
        return None
    private = bool(caveats) or any(figure.private for figure in figures)
    if private:
        visitor.note(services, "seeQuality", job.id)
    return Quality(figures, caveats, expect(read_spec(job), schema), private)


def read_figures(services: Services, visitor: Visitor, job: Job) -> Figures | None:
    """Read the figures of a verdict; None for visitors who are not the owner, and where there is no report."""
    report = _own_report(services, visitor, job)
    if report is None:
        return None
    visitor.note(services, "seeQuality", job.id)
    return Figures.from_report(report)


def accuracies_of_jobs(services: Services, visitor: Visitor, listed: Sequence[Job]) -> dict[str, Figure]:
    """The first figure of each job of a list, by the id of the job."""
    accuracies = {}
    for job in listed:
        measures = _measures(services, visitor, job)
        headline = next((measure for measure in measures if measure["name"] in _HEADLINES), None)
        if headline is not None:
            accuracies[job.id] = _figure(headline)
    for job_id, figure in accuracies.items():
        if figure.private:
            visitor.note(services, "seeQuality", job_id)
    return accuracies


def _measures(services: Services, visitor: Visitor, job: Job) -> list[dict[str, Any]]:
    """Return the measures of the report that this visitor may read."""
    measures: list[dict[str, Any]] = (_report(services, visitor, job) or {"measures": []})["measures"]
    return measures


def _own_report(services: Services, visitor: Visitor, job: Job) -> Any:
    report = _report(services, visitor, job)
    return report if report and report["view"] == _OWNER else None


def _report(services: Services, visitor: Visitor, job: Job) -> Any:
    """The one that this visitor may read, as JSON; None before the job has ended, and where it is gone or held."""
    if job.released_at is None or job.finished_at is None:
        return None
    if job.is_held and Scope.RELEASES_APPROVE not in visitor.key.scopes:
        return None
    name = "report.json" if Scope.REPORTS_READ in visitor.key.scopes else "report-releasable.json"
    try:
        return json.loads(services.artifacts.get(job.id, name).path.read_bytes())
    except (NotFound, FileNotFoundError):
        return None


def _figure(measure: dict[str, Any]) -> Figure:
    value = _with_unit(measure["value"], measure["unit"])
    if measure["spread"] is not None:
        value += f" ± {measure['spread']:.1f}"
    if measure.get("balanced") is not None:
        value += f" ({_with_unit(measure['balanced'], measure['unit'])} averaged over classes)"
    real = "" if measure["ceiling"] is None else _with_unit(measure["ceiling"], measure["unit"])
    ends = [_with_unit(end, measure["unit"]) for end in measure.get("confidence_interval", ())]
    interval = f"95 % interval over {measure['seeds']} seeds: {' to '.join(ends)}" if ends else ""
    words = _WORDS.get(measure["name"].partition("_")[0], ("accuracy",))
    return Figure(measure["title"], measure["meaning"], value, real, measure["audience"] == _OWNER, words, interval)


def _with_unit(value: float, unit: str) -> str:
    if unit == "percent":
        return f"{value:.1f} %"
    return f"{value:.3g}" if value < _LARGE else f"{value:,.0f}"


MOST_CLASSES: Final = 30
_STEPS: Final = 5


class Cell(NamedTuple):
    """Test images of one class that were given one class.

    Attributes:
        step: 0 for none, up to 5 for all of the row.
    """

    images: int
    step: int
    right: bool


class Confusion(NamedTuple):
    """A table of confusions as the page shows it.

    Attributes:
        accuracy: Percent of right labels.
    """

    accuracy: float
    reference: str
    class_names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def read_confusion(services: Services, visitor: Visitor, job: Job) -> Confusion | None:
    """The table of a classifier; None for visitors who are not the owner, and where the report has none."""
    report = _own_report(services, visitor, job)
    if report is None or report.get("confusion") is None:
        return None
    visitor.note(services, "seeConfusion", job.id)
    accuracy = next((one["value"] for one in report["measures"] if one["name"] == "classifier_accuracy"), 0.0)
    return _shown(ConfusionTable.model_validate(report["confusion"]), accuracy)


def _shown(table: ConfusionTable, accuracy: float) -> Confusion:
    names = table.class_names[:MOST_CLASSES]
    rows = tuple(_row(index, counts[: len(names)], sum(counts)) for index, counts in enumerate(table.counts))
    return Confusion(accuracy, table.reference, names, rows[: len(names)])


def _row(index: int, counts: tuple[int, ...], total: int) -> tuple[Cell, ...]:
    return tuple(
        Cell(count, -(-_STEPS * count // total) if total else 0, column == index) for column, count in enumerate(counts)
    )
