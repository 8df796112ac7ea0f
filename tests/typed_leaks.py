"""What mypy must refuse: a figure for the owner where a figure for anybody is asked for. Never run.

`scripts/check` fails when one of these comments has nothing to silence any more.
"""

from datalens_service.evaluation.evaluate import Evaluation
from datalens_service.evaluation.measures import Measure, Measurements
from datalens_service.report.document import MeasureSection
from datalens_service.report.summary import usefulness


def put_private_figures_into_views(evaluation: Evaluation) -> None:
    """Each line is a leak."""
    usefulness(evaluation.measured)  # type: ignore[arg-type]
    MeasureSection.from_measure(evaluation.measured)  # type: ignore[arg-type]
    _: tuple[Measure, ...] = evaluation.measured  # type: ignore[assignment]
    _everything: Measurements = evaluation.measured  # type: ignore[assignment]
    evaluation.measured.measures  # type: ignore[attr-defined]  # noqa: B018
