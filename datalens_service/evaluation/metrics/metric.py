"""A metric of the report: its name, the images it reads, and its computation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.outcome import MetricResult, PublicFacts, Reads

Better = Literal["higher", "lower"]


def _always(_facts: PublicFacts) -> bool:
    return True


def _one(_facts: PublicFacts) -> int:
    return 1


@dataclass(frozen=True)
class Metric:
    """One metric of the report.

    Attributes:
        name: Key in `METRICS` and in report JSON.
        meaning: One or two sentences for people.
        unit: "percent", "distance", "score", or a word of its own.
        reads: The most private images that it reads; decides who may see it.
        compute: Computes it from what `reads` permits; None: the job releases it by a charged mechanism.
        applies: Tells whether a job has it, provided that the images it reads exist.
        group: Shared title of metrics that come from one computation and fail together.
        family: The metric without its variant: "accuracy", "fid".
        variant: The extractor or classifier of this variant.
    """

    name: str
    title: str
    meaning: str
    unit: str
    better: Better
    reads: Reads
    compute: Callable[[Context], MetricResult] | None = None
    applies: Callable[[PublicFacts], bool] = _always
    steps: Callable[[PublicFacts], int] = _one
    group: str | None = None
    family: str | None = None
    variant: str | None = None

    def asked(self, facts: PublicFacts) -> bool:
        """Tell whether the evaluation of a job computes it."""
        return self.compute is not None and facts.provide(self.reads) and self.applies(facts)
