"""DataLens with the settings that its authors published, for data of any size (docs/published-algorithm.md)."""

import math
from typing import Any, Final, NamedTuple

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import TopAggParameters
from datalens_service.methods import DataLens
from datalens_service.methods.voting.teachers import ConvTeacher
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, cost_ledger_units, default_delta, limit_units


class Published(NamedTuple):
    """Options of one of the authors' commands (AI-secure/DataLens, commit 72d0f2f, README.md).

    Attributes:
        dimensions: Numbers of one image.
        batch: Records of a teacher's batch, and images voted on in a step; their code lowers 30 to the size of a shard.
        clip: Bound of a gradient coordinate; `_NO_BOUND` where the command has none.
    """

    num_teachers: int
    top_k: int
    noise_stddev: int
    threshold: float
    z_dim: int
    dimensions: int = 28 * 28
    batch: int = 15
    warmup_steps: int = 10
    clip: float = 1e-5


_NO_BOUND: Final = 1e6
_FACES: Final[dict[str, Any]] = {"z_dim": 100, "dimensions": 64 * 64 * 3, "batch": 30, "warmup_steps": 30}

COMMANDS: Final[dict[str, tuple[Published, Published]]] = {
    "paper": (
        Published(4000, top_k=200, noise_stddev=5000, threshold=0.7, z_dim=50),
        Published(4000, top_k=300, noise_stddev=800, threshold=0.2, z_dim=50),
    ),
    "paper_fashion_mnist": (
        Published(4000, top_k=200, noise_stddev=5000, threshold=0.9, z_dim=50),
        Published(4000, top_k=350, noise_stddev=1000, threshold=0.27, z_dim=64),
    ),
    "paper_celeba_gender": (
        Published(6000, top_k=700, noise_stddev=9000, threshold=0.85, **_FACES),
        Published(6000, top_k=500, noise_stddev=700, threshold=0.12, clip=_NO_BOUND, **_FACES),
    ),
    "paper_celeba_hair": (
        Published(8000, top_k=700, noise_stddev=9000, threshold=0.9, **_FACES)._replace(batch=15),
        Published(4000, top_k=500, noise_stddev=700, threshold=0.25, clip=_NO_BOUND, **_FACES),
    ),
}
"""Commands by the name of the preset: for ε = 1, and for ε = 10."""


class MeasuredVotes(NamedTuple):
    """Accuracy that images of ten digits or ten kinds of clothes taught, after votes of 40 to 4,000 such teachers.

    The runs had no guarantee (benchmarks/results/ablations.md).

    Attributes:
        votes: At least so many.
        noise_per_teacher: σ/N at most.
        lowest: Percent of real test images.
        highest: As `lowest`, of the best run.
    """

    votes: int
    noise_per_teacher: float
    lowest: float
    highest: float


MEASURED_VOTES: Final = (
    MeasuredVotes(130, 0.25, 54.3, 68.9),
    MeasuredVotes(130, 1.25, 38.7, 56.0),
    MeasuredVotes(70, 1.25, 16.5, 59.0),
)
MEASURED_CLASSES: Final = 10


def find_measured_votes(votes: int, noise_per_teacher: float) -> MeasuredVotes | None:
    """Return the best runs with at most so many votes and at least so much noise; None where none of those learned."""
    runs = (run for run in MEASURED_VOTES if votes >= run.votes and noise_per_teacher <= run.noise_per_teacher)
    return next(runs, None)


def build_published(name: str, schema: Schema, epsilon: float) -> DataLens:
    """Adapt the command of a preset to as many teachers as there are shards, and as many pixels as an image has.

    The noise shrinks with the number of teachers, so that a vote is as clear as the authors'; then the budget pays for
    fewer votes. k grows and shrinks with the pixels.

    Args:
        name: Key of `COMMANDS`.
        schema: Its `num_units` is public.
    """
    published = COMMANDS[name][0 if epsilon <= 1 else 1]
    num_teachers = max(1, min(published.num_teachers, schema.num_units // published.batch))
    top_k = math.ceil(published.top_k * schema.dimensions / published.dimensions)
    return DataLens(
        teacher=ConvTeacher(batch=published.batch, warmup_steps=published.warmup_steps),
        num_teachers=num_teachers,
        images_per_step=published.batch,
        votes=TopAggParameters(top_k=top_k),
        threshold=published.threshold,
        z_dim=published.z_dim,
        clip=published.clip,
        **_choose_noise(published, num_teachers, top_k, limit_units(epsilon, default_delta(schema.num_units))),
    )


def _choose_noise(published: Published, num_teachers: int, top_k: int, ledger_units: int) -> dict[str, int]:
    """Choose the authors' noise for each teacher, or the least for one step if theirs is too expensive."""
    stddev = round(published.noise_stddev * num_teachers / published.num_teachers)
    if stddev >= MINIMUM_NOISE_STDDEV and published.batch * cost_ledger_units(4 * top_k, stddev) <= ledger_units:
        return {"noise_stddev": stddev}
    return {"steps": 1}
