"""Every registered method on small data with units of several records, and neighbours chosen to be far away."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods import (
    AnyMethod,
    DataLens,
    Diffusion,
    DpGan,
    DpSgd,
    Guided,
    LabelledMoments,
    LabelledPool,
    Mixture,
    Moments,
    PateGan,
    PooledMoments,
    PrivateEvolution,
    PublicVotes,
    Rejection,
    RejectionOrDiffusion,
    Scattering,
    Shapes,
)
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves
from datalens_service.methods.voting.rivals import build_rival
from datalens_service.models.encoders import ScatteringEncoder, imagenet_lite0
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.spec import TrainingSpec

from .cases import REPLACE_ONE, ZERO_OUT
from .replay import OWN_ENCODER, neighbor

_KEY = b"k" * 32
_UNITS, _CLASSES, _RARE = 26, 3, 2
_INK = 0.2
OUTLIER = 0
"""The unit whose records are white and alone in their class."""


@dataclass(frozen=True)
class Neighbor:
    """Another data set that differs in one unit."""

    unit: int
    relation: NeighboringRelation
    dataset: Dataset


@dataclass(frozen=True)
class ContributionCase:
    """A method on images of `side`² pixels and units of up to `records` records, with so many neighbours.

    Images are of any brightness, or strokes on black if they are `drawn`. With `public` jobs start from public images.
    """

    method: AnyMethod
    records: int = 1
    side: int = 6
    channels: int = 1
    tried: int = 6
    drawn: bool = False
    public: bool = False

    @property
    def name(self) -> str:
        """For alarms and test reports."""
        variants = [
            getattr(self.method, name, None)
            for name in ("content", "teacher", "shards", "votes", "architecture", "encoder")
        ]
        variants = [getattr(variant, "name", variant) for variant in variants]
        words = [self.method.name, *(str(variant) for variant in variants if variant)]
        words += ["public start"] if self.public else []
        words += ["in colour"] if self.channels > 1 else []
        return " ".join([*words, f"{_UNITS} units of {self.records}", f"{self.side}x{self.side}"])

    @property
    def spec(self) -> TrainingSpec:
        """A job with little noise, so that what is learnt from one step matters in the next."""
        public = "ds_pool" if self.public or self.method.needs_public_images else None
        return TrainingSpec(method=self.method, epsilon=8.0, delta=1e-3, public_data=public)

    def dataset(self, rng: np.random.Generator) -> Dataset:
        """Any records; one unit is as extreme as an image can be, and the only one of its class."""
        counts = np.append(self.records, rng.integers(1, self.records + 1, size=_UNITS - 1))
        units = np.repeat(np.arange(_UNITS), counts)
        shape = (len(units), self.side, self.side, self.channels)
        images = rng.integers(0, rng.integers(60, 250), shape).astype(np.uint8)
        if self.drawn:
            images = np.where(rng.random(images.shape) < _INK, 255, 0).astype(np.uint8)
        labels = rng.choice(_CLASSES - 1, p=rng.dirichlet([2, 2]), size=len(units))
        images[units == OUTLIER], labels[units == OUTLIER] = 255, _RARE
        order = rng.permutation(len(units))
        split = Split(images[order], labels[order], units[order])
        schema = Schema(
            channels=self.channels, height=self.side, width=self.side, class_names=("a", "b", "c"), num_units=_UNITS,
            unit="patient", records_per_unit=self.records, classes_per_unit=min(self.records, _CLASSES),
        )  # fmt: skip
        return Dataset(schema, split, None, _KEY)

    def neighbors(self, rng: np.random.Generator, dataset: Dataset) -> Iterator[Neighbor]:
        """Neighbours under both relations: the extreme unit changes, and any other."""
        someone = int(rng.integers(1, _UNITS))
        changes = (
            (OUTLIER, ZERO_OUT, _nothing),
            (someone, REPLACE_ONE, _too_many),
            (someone, ZERO_OUT, _nothing),
            (OUTLIER, REPLACE_ONE, _dark),
            (someone, REPLACE_ONE, _white),
            (someone, REPLACE_ONE, _of_another_unit),
        )
        for unit, relation, records in changes[: self.tried]:
            changed = _replaced(dataset.train, unit, records(self, rng, dataset.train), rng)
            yield Neighbor(unit, relation, neighbor(dataset.schema, changed, _KEY))


Records = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _nothing(case: ContributionCase, _rng: np.random.Generator, _train: Split) -> Records:
    return _plain(case, 0, 0, 0)


def _dark(case: ContributionCase, _rng: np.random.Generator, _train: Split) -> Records:
    """One record, of another class."""
    return _plain(case, 1, 0, 0)


def _white(case: ContributionCase, _rng: np.random.Generator, _train: Split) -> Records:
    """The longest vectors, in the class that has few."""
    return _plain(case, case.records, 255, _RARE)


def _of_another_unit(_case: ContributionCase, _rng: np.random.Generator, train: Split) -> Records:
    """The same records as those of somebody else."""
    rows = train.unit_ids == train.unit_ids[-1]
    return train.images[rows], train.labels[rows]


def _too_many(case: ContributionCase, rng: np.random.Generator, _train: Split) -> Records:
    """More records than were declared: an upload would be refused."""
    images, labels = _plain(case, case.records + 4, 0, int(rng.integers(_CLASSES)))
    return rng.integers(0, 256, images.shape).astype(np.uint8), labels


def _plain(case: ContributionCase, count: int, brightness: int, label: int) -> Records:
    shape = (count, case.side, case.side, case.channels)
    return np.full(shape, brightness, dtype=np.uint8), np.full(count, label, dtype=np.int64)


def _replaced(train: Split, unit: int, records: Records, rng: np.random.Generator) -> Split:
    """Records of all other units in their order, with new ones of `unit` somewhere between them."""
    images, labels = records
    others = train.unit_ids != unit
    place = int(rng.choice([0, others.sum() // 2, others.sum()]))

    def inserted(before: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([before[others][:place], new, before[others][place:]])

    units = inserted(train.unit_ids, np.full(len(labels), unit))
    return Split(inserted(train.images, images), inserted(train.labels, labels), units)


_MOMENTS = Moments(subspace_dimensions=4)
_EVOLUTION = PrivateEvolution(generator="tiny", rounds=3, candidates=5, images=4)
_SHAPES = Shapes(subspace_dimensions=4)
_MIXTURE = Mixture(components=2, iterations=2, subspace_dimensions=4)
_GUIDED: dict[str, Any] = {"steps": 3, "samples": 100, "epochs": 1, "hidden_units": 3}
_SCATTERING: dict[str, Any] = {"steps": 2, "samples": 100, "dimensions": 9}
WEIGHTS = ["imagenet-lite0"] if imagenet_lite0.find_spec(imagenet_lite0._PACKAGE) else []
_OPPONENT = ScatteringEncoder(colours="opponent", mirrored=True)
_ENCODERS = ("scattering", OWN_ENCODER, *WEIGHTS)
_POISSON: dict[str, Any] = {"sampling": "poisson", "batch": 9, "noise_multiplier": 8.0}
_DIRECTIONS: dict[str, Any] = {"noise": "von_mises_fisher", "sampling": "partition"}
_SAMPLED = DpSgd(architecture="linear", steps=3, **_POISSON)
_DIFFUSION: dict[str, Any] = {
    "warm_start": _MOMENTS, "steps": 3, "batch": 9, "noise_multiplier": 8.0, "noise_draws": 2, "width": 8, "blocks": 1,
    "pretraining_steps": 2, "pretraining_samples": 100,
}  # fmt: skip
_REJECTION = Rejection(warm_start=_SHAPES, **_SCATTERING)
_EITHER = RejectionOrDiffusion(drawings=_REJECTION, objects=Diffusion(**_DIFFUSION | {"warm_start": _REJECTION}))
_SIX: dict[str, Any] = {"num_teachers": 6, "images_per_step": 6, "steps": 3, "z_dim": 4, "teacher_batch": 4}
_ANY_VOTES: dict[str, Any] = {
    **_SIX, "clip": 1.0, "threshold": "none", "teacher_warmup_steps": 2, "student": "class_networks",
}  # fmt: skip
_VOTES: dict[str, Any] = {**_ANY_VOTES, "top_k": 5}
_RIVAL: dict[str, Any] = {**_SIX, "vote_dimensions": 9}
_DESCENT: dict[str, Any] = {
    "discriminator": "linear", "steps": 2, "updates_per_generator_step": 1, "images_per_step": 6, "z_dim": 4,
}  # fmt: skip
_SCORES: dict[str, Any] = {**_SIX, "student": "class_networks", "teacher": "dense", "discriminator": "linear"}
_HISTOGRAMS: dict[str, Any] = {"votes": {"projections": 4, "bins": 4}, **_RIVAL}
_LOW = {"vote_basis": "dct", "vote_dimensions": 9}
_APART = {"shards": "class_pure", **_LOW}
_PER_INSTANCE = DpSgd(
    architecture="linear", steps=2, clip_norm=20.0, learning_rate=0.01, accounting="per_instance", histogram_noise=100
)
_STARTED = (
    PooledMoments(frequencies=9), Scattering(warm_start=_MOMENTS, **_SCATTERING), _REJECTION,
    DpSgd(architecture="linear", steps=3), Diffusion(**_DIFFUSION | {"warm_start": _REJECTION}), _EITHER,
)  # fmt: skip
"""Of every method that may start from public images and does not have to."""

HORIZON = 52
"""Steps after which whatever a run does now and then was done (`test_contributions.py` collects the periods)."""
HORIZON_OF_A_DENOISER = 27
"""The same of the method whose steps take longest."""
_LONG = (
    Guided(warm_start=_MOMENTS, **_GUIDED | {"steps": HORIZON}),
    Scattering(warm_start=_MOMENTS, **_SCATTERING | {"steps": HORIZON}),
    DpSgd(architecture="linear", steps=HORIZON),
    DpSgd(architecture="linear", steps=HORIZON, **_POISSON),
    Diffusion(**_DIFFUSION | {"steps": HORIZON_OF_A_DENOISER, "noise_draws": 1}),
    DataLens(teacher="kernel", **_VOTES | {"steps": HORIZON}),
    DpGan(warm_start=None, **_DESCENT | {"steps": HORIZON}),
    PateGan(warm_start=None, **_SCORES | {"steps": HORIZON}),
)

LONG_CASES = tuple(ContributionCase(method, 1, tried=1, side=4) for method in _LONG)

CASES: tuple[ContributionCase, ...] = (
    *(ContributionCase(_MOMENTS, records) for records in (1, 2, 3)),
    *(ContributionCase(PooledMoments(frequencies=9), records) for records in (1, 2, 3)),
    *(ContributionCase(_MIXTURE, records) for records in (1, 2, 3)),
    *(ContributionCase(_SHAPES, records) for records in (1, 3)),
    *(ContributionCase(Shapes(content="drawings", subspace_dimensions=4), records) for records in (1, 2, 3)),
    *(ContributionCase(Shapes(content="objects", subspace_dimensions=4), records) for records in (1, 3)),
    *(ContributionCase(Guided(warm_start=_MOMENTS, **_GUIDED), records) for records in (1, 2)),
    ContributionCase(Guided(warm_start=_MIXTURE, **_GUIDED), 3),
    *(ContributionCase(DataLens(teacher="kernel", **_VOTES), records) for records in (1, 2, 3)),
    ContributionCase(DataLens(teacher="kernel", votes="klevel", **_VOTES, **_APART), 2),
    ContributionCase(DataLens(teacher="dense", **_VOTES | {"student": "deconv"}), 1, tried=3),
    ContributionCase(
        DataLens(
            teacher="dense", votes="count_sketch", sketch_rows=2, sketch_columns=8, warm_start=_MOMENTS,
            **_VOTES, **_APART,
        ),
        3,
    ),
    ContributionCase(DataLens(teacher="conv", **_VOTES), 2, side=8),
    ContributionCase(
        DataLens(teacher="kernel", votes={"name": "histogram", "projections": 3}, **_ANY_VOTES), 1, tried=2,
    ),
    *(ContributionCase(build_rival("g_pate", **_HISTOGRAMS), records, tried=4) for records in (1, 3)),
    ContributionCase(DataLens(teacher="kernel", votes="clipped_rows", **_ANY_VOTES), 1, tried=2),
    ContributionCase(DpGan(warm_start=None, **_DESCENT), 1, tried=4),
    ContributionCase(DpGan(warm_start=_MOMENTS, **_DESCENT), 2, tried=2),
    ContributionCase(
        DpGan(warm_start=None, **_POISSON, **_DESCENT | {"steps": 3}), 3, tried=2  # The block of `_SAMPLED`.
    ),
    ContributionCase(PateGan(warm_start=None, **_SCORES), 1, tried=3),
    ContributionCase(PateGan(warm_start=_MOMENTS, **_SCORES | {"votes": {"scores": "bit"}}), 2, tried=2),
    ContributionCase(
        PateGan(warm_start=None, **_SCORES | {"votes": {"scores": "relative"}, "shards": "mixed"}), 3, tried=3
    ),
    *(ContributionCase(build_rival("gs_wgan", **_RIVAL), records, tried=4) for records in (1, 3)),
    ContributionCase(
        build_rival("gs_wgan", teacher="dense", shards="mixed", vote_basis="pixels", **_RIVAL), 2, tried=2
    ),
    ContributionCase(
        build_rival("g_pate", teacher="dense", shards="mixed", vote_basis="pixels", **_HISTOGRAMS), 2, tried=2
    ),
    ContributionCase(DpSgd(architecture="linear", steps=3), 1),
    ContributionCase(DpSgd(architecture="linear", steps=2, compression="normtopk", keep=0.7), 3),
    ContributionCase(DpSgd(architecture="linear", steps=2, batch=_UNITS, **_DIRECTIONS), 3),
    ContributionCase(DpSgd(architecture="linear", steps=2, compression="topk", keep=0.5), 2),
    ContributionCase(DpSgd(architecture="mlp", optimizer="adam", steps=2), 2),
    *(ContributionCase(_SAMPLED, records, tried=2) for records in (1, 3)),
    ContributionCase(DpSgd(architecture="small_cnn", steps=2), 3, side=18, tried=3),
    *(ContributionCase(Scattering(warm_start=_MOMENTS, **_SCATTERING), records, tried=3) for records in (1, 3)),
    ContributionCase(Scattering(warm_start=DeadLeaves(), **_SCATTERING), 2, tried=2),
    *(
        ContributionCase(LabelledMoments(warm_start=PooledMoments(frequencies=9), **_SCATTERING), records, tried=2)
        for records in (1, 2, 3)
    ),
    *(ContributionCase(Scattering(encoder=encoder, warm_start=None, steps=2), 2, tried=2) for encoder in _ENCODERS),
    ContributionCase(Scattering(encoder=_OPPONENT, warm_start=DeadLeaves(), **_SCATTERING), 2, channels=3, tried=2),
    *(ContributionCase(PublicVotes(cells=5), records, tried=4) for records in (1, 3)),
    ContributionCase(PublicVotes(cells=5, encoder=OWN_ENCODER), 2, tried=1),
    *(
        ContributionCase(LabelledPool(classifier=Scattering(warm_start=_MOMENTS, **_SCATTERING)), records, tried=2)
        for records in (1, 2, 3)
    ),
    ContributionCase(PublicVotes(cells=5, verbatim=False), 2, tried=2),
    *(ContributionCase(_EVOLUTION, records, tried=2) for records in (1, 2, 3)),
    ContributionCase(Diffusion(**_DIFFUSION), 1, tried=2),
    *(ContributionCase(Diffusion(**_DIFFUSION), records, tried=1) for records in (2, 3)),
    *(ContributionCase(_REJECTION, records, tried=2) for records in (1, 2, 3)),
    *(ContributionCase(_EITHER, records, tried=1) for records in (1, 3)),
    ContributionCase(_EITHER, 2, tried=1, drawn=True),
    ContributionCase(_PER_INSTANCE, 1, tried=2),
    *(ContributionCase(method, 1, tried=1, public=True) for method in _STARTED),
    *LONG_CASES,
)  # fmt: skip

LARGE_CASES: tuple[ContributionCase, ...] = (
    ContributionCase(_MOMENTS, 2, side=27, tried=1),
    ContributionCase(DataLens(teacher="kernel", **_VOTES | {"images_per_step": 912}), 2, side=17, tried=1),
)
"""More coordinates than the sampler draws at once: 729·730/2 of a subspace, 912·289 of a vote."""
