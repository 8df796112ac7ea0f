"""Two jobs side by side: what they were asked for, what they reached, and where their parameters differ."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.quality import Figure, quality_of_job, read_figures
from datalens_service.api.pages.views.rendering import Visitor
from datalens_service.api.schemas.jobs import JobRead
from datalens_service.base.parsing import spell_number
from datalens_service.report.verdict import Figures, judge, judge_pair
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs

ABSENT = "–"
"""Text in the column of a job that has no such parameter or figure."""

_WORDS: Final = {
    "epsilon": "ε requested",
    "delta": "δ asked for",
    "synthetic_images": "Images packed",
    "method.name": "Method",
    "public_data": "Public images",
}


class Side(NamedTuple):
    """One of the two jobs.

    Attributes:
        figures: By their titles; those for the owner alone only where the visitor is one.
        judged: Figures that the verdict rests on, for the owner alone.
    """

    job: JobRead
    dataset: str
    made: str | None
    figures: dict[str, Figure]
    judged: Figures | None

    @property
    def verdict(self) -> str:
        """Return the verdict, for the owner alone; else empty."""
        return "" if self.judged is None else judge(self.judged).sentence


class ComparisonRow(NamedTuple):
    """A parameter or a figure of both jobs."""

    name: str
    first: str
    second: str
    private: bool = False
    figure: Figure | None = None


def load_side(services: Services, visitor: Visitor, job_id: str) -> Side:
    """A job with its figures; that private ones were seen is noted."""
    job = jobs.get(services.database, job_id)
    dataset = datasets.get(services.database, job.dataset_id)
    quality = quality_of_job(services, visitor, job, dataset.schema)
    figures = {figure.title: figure for figure in quality.figures} if quality else {}
    return Side(JobRead.from_job(job), dataset.name, job.result, figures, read_figures(services, visitor, job))


def judge_sides(first: Side, second: Side) -> str:
    """Say which of two jobs is better, for the owner alone; empty for others, and where figures do not compare."""
    same = first.job.dataset_id == second.job.dataset_id
    return judge_pair(first.judged, second.judged) if same and first.judged and second.judged else ""


def compare_figures(first: Side, second: Side) -> list[ComparisonRow]:
    """Figures of both reports, in the order of the first."""
    titles = dict.fromkeys([*first.figures, *second.figures])
    return [_figure_row(title, first.figures.get(title), second.figures.get(title)) for title in titles]


def _figure_row(title: str, first: Figure | None, second: Figure | None) -> ComparisonRow:
    private = any(figure.private for figure in (first, second) if figure)
    left, right = (figure.value if figure else ABSENT for figure in (first, second))
    return ComparisonRow(title, left, right, private, first or second)


def compare_parameters(first: Side, second: Side) -> list[ComparisonRow]:
    left, right = (dict(flatten(side.job.spec.model_dump(mode="json"))) for side in (first, second))
    names = dict.fromkeys([*left, *right])
    rows = [ComparisonRow(name_parameter(name), left.get(name, ABSENT), right.get(name, ABSENT)) for name in names]
    return [row for row in rows if row.first != row.second]


def name_parameter(path: str) -> str:
    """Name a parameter in words: method.warm_start.num_components is the number of components of the warm start."""
    steps = path.removeprefix("method.").replace("num_", "number_of_").replace("_", " ").split(".")
    words = " of ".join(reversed(steps))
    return _WORDS.get(path) or words[:1].upper() + words[1:]


def flatten(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a nested object with their paths, as text."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", ABSENT if value is None else str(spell_number(value))
