"""The confusion table of a classifier, as its owner sees it on the page of the job. For the owner alone."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from datalens_service.errors import NotFound
from datalens_service.evaluation.measures import ConfusionTable
from datalens_service.store.datasets.artifacts import ArtifactStore

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
    """What the page shows.

    Attributes:
        accuracy: Percent of right labels.
        class_names: Of rows and columns; the first 30.
        rows: One per true class.
    """

    accuracy: float
    reference: str
    class_names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def read_confusion(artifacts: ArtifactStore, job_id: str) -> Confusion | None:
    """From the owner's report; None where it has no table, or was removed with its data set."""
    try:
        report = json.loads(artifacts.get(job_id, "report.json").path.read_bytes())
    except (NotFound, FileNotFoundError):
        return None
    if report.get("confusion") is None:
        return None
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
