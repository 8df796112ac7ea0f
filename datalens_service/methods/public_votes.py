"""Public votes: private records vote for the public images that they are next to.

One release: noisy votes per class and public cell → how likely each cell is of each class → the pool's images, drawn in
proportion, with soft labels, or what a denoiser of the pool makes of them. Lin et al. 2024, "Differentially private
synthetic data via foundation model APIs 1: images", vote so for generated images; here the pool is fixed, and its cells
are wide enough to collect votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import Account, CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import ExecutionOptions, Plan, WalledMethod, named
from datalens_service.methods.public_start import PublicImages, check_same_size, describe_source, spread_over
from datalens_service.methods.sums.record_sums import StatelessRun, calibrated
from datalens_service.models.encoders import AnyEncoder, ScatteringEncoder
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import PublicCells, pack
from datalens_service.models.public_source import PublicEncoder
from datalens_service.phases import tell_part
from datalens_service.privacy.accounting import mu_of_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Flag, Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.classifiers.encoded_features import FeatureBasis
    from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser


Floats = NDArray[np.float64]

_VOTES_PER_CELL: Final = 10
"""Times the noise: with fewer votes a cell tells nothing, with more it says little of what is in it."""
_FEWEST, _MOST = 8, 2**14
_DIMENSIONS: Final = 64
_FITTED: Final = 4_000
_LEARNED: Final = 20_000
_EMBEDDING: Final = 0.5
"""Part of the time before the votes in which the pool is embedded."""
_LENGTH: Final = 20
"""Times the votes: what comes before them."""
_HIDING_STDDEV: Final = 1.0
"""Noise on pixels from −1 to 1."""


class PublicVotes(WalledMethod):
    """Parameters of votes for public images."""

    starts_from_public_data: ClassVar[bool] = True
    needs_public_images: ClassVar[bool] = True

    name: Literal["public_votes"] = "public_votes"
    encoder: Annotated[AnyEncoder, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=ScatteringEncoder(), description="Public function by which images are near each other."
    )
    cells: Integer | None = Field(
        default=None,
        ge=2,
        le=_MOST,
        description="Groups of public images that are voted on. Left out: so many that one gets votes of ten times "
        "the noise, were all equal.",
    )
    threshold: Number = Field(default=1.0, ge=0, le=10, description="Votes that count, in deviations of the noise.")
    cap: Number = Field(default=0.1, gt=0, le=1, description="Largest share of a class that one cell gives.")
    verbatim: Flag = Field(
        default=True,
        exclude_if=bool,
        description="Hand out public images, or parts of them. If not, each that was chosen is hidden in noise, and a "
        "denoiser that learned from all of them draws another in its place, without a soft label.",
    )

    @property
    def releases_public_images(self) -> bool:
        """Only verbatim."""
        return self.verbatim

    def plan(self, schema: Schema, units: int) -> Plan:
        """One release of votes."""
        self.encoder.check(schema)
        votes = CellVotes(
            num_groups=schema.num_classes,
            cells=self.cells or plan_cells(schema, units),
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return Plan(releases=(calibrated(votes, units),))

    @property
    def crops(self) -> bool:
        """Whether parts of public images are handed out beside them: where a network of photographs sees them."""
        return self.verbatim and self.public_encoder() is not None

    def public_encoder(self) -> PublicEncoder | None:
        """The encoder, if it has weights."""
        return self.encoder.source()

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> PublicVotesRun:
        """A run of the one release."""
        return PublicVotesRun(self, plan, records, randomness, options)


def plan_cells(schema: Schema, units: int) -> int:
    """Cells that the records of a class pay for: a tenth of their number over the noise, from public numbers."""
    evidence = schema.num_units * mu_of_units(units) / schema.num_classes
    return min(_MOST, max(_FEWEST, round(evidence / _VOTES_PER_CELL)))


class Cells(NamedTuple):
    """Public: how images are seen, and the cells of a pool."""

    view: FeatureBasis
    cells: PublicCells


def nearest_cells(rows: Rows, cells: Cells) -> Votes:
    """Contribution: one vote per record, for the cell that its own image is next to."""
    return Votes(cells.cells.nearest(cells.view.features(rows.values)), rows.labels, rows.units)


class PublicVotesRun(StatelessRun):
    """The one release."""

    steps = 1

    def __init__(
        self,
        parameters: PublicVotes,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters, self._records, self._randomness = parameters, records, randomness
        self._options = options
        self._denoiser: PublicDenoiser | None = None
        mechanism = plan.releases[0].mechanism
        if not isinstance(mechanism, CellVotes):
            raise TypeError("the release of public votes is one of votes")
        self._mechanism = mechanism

    def start_from(self, public: PublicImages) -> None:
        """Cut the pool into cells; labels of it are not looked at."""
        from datalens_service.models.classifiers.encoded_features import FeatureBasis
        from datalens_service.models.generators.augmentation import with_crops

        schema = self._records.schema
        check_same_size(schema, public.schema)
        self._pool = np.asarray(public.images)
        if self._parameters.crops:
            self._pool = with_crops(self._pool, self._randomness.numpy("crops"))
        seen = spread_over(public, _FITTED).images
        encoder, options = self._parameters.encoder, self._options
        dimensions = min(_DIMENSIONS, len(seen), encoder.dimensions(schema))
        self._view = FeatureBasis.from_encoder(encoder, schema, options.device, dimensions, options.encoder)
        self._view.fit(seen, 0.0, self._randomness.seed("basis"))
        features = self._view.features(self._pool, tell_part(options.tell, 0.0, _EMBEDDING))
        self._cells = PublicCells.fit(features, self._mechanism.cells, self._randomness.seed("cells"))
        self._features, self._members = features, self._cells.nearest(features)
        if not self._parameters.verbatim:
            from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser

            told = tell_part(options.tell, _EMBEDDING, 1.0)
            learned, digest = spread_over(public, _LEARNED).images, describe_source(public).sha256
            self._denoiser = PublicDenoiser.from_images(schema, learned, digest, options.public_models, told)

    def lengths(self) -> dict[int, int]:
        """The pool is embedded first."""
        return {0: _LENGTH}

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """The votes."""
        cells = Cells(self._view, self._cells)
        self._votes = self._records.release(
            self._mechanism, nearest_cells, cells, step=step, account=account, noise=noise
        )

    def result(self) -> Generator:
        """The pool, with what the votes say of its cells; if not verbatim, a denoiser behind it."""
        from datalens_service.models.vote_labels import label_softly

        noise = self._mechanism.noise_stddev / self._mechanism.grid
        votes = self._votes[:, : len(self._cells.centres)]
        soft = label_softly(self._features, self._cells.centres, votes)
        shares = capped_shares(votes, self._parameters.threshold * noise, self._parameters.cap).T
        sizes = np.bincount(self._members, minlength=len(shares))
        # An image that could be of many classes tells little of any.
        weights = soft * (shares / np.maximum(sizes, 1)[:, None])[self._members]
        tensors = pack(self._pool, weights.astype(np.float32), soft)
        if self._denoiser is None:
            return Generator("pool", self._records.schema, {}, tensors)
        from datalens_service.models.generators.denoiser.diffusion import Start

        finished = self._denoiser.finish(Start("pool", {}, tensors), _HIDING_STDDEV)
        return Generator("diffusion", self._records.schema, *finished)


def capped_shares(votes: Floats, least: float, cap: float) -> Floats:
    """(classes, cells) shares of each class, none above `cap` unless too few cells are left for that.

    Args:
        votes: (classes, cells) noisy.
        least: Cells with fewer votes give nothing, but for the fullest of a class.
    """
    kept = np.where(votes >= np.minimum(least, votes.max(axis=1, keepdims=True)), np.maximum(votes, 0), 0)
    kept[kept.sum(axis=1) == 0] = 1.0
    shares = kept / kept.sum(axis=1, keepdims=True)
    cut = np.minimum(shares, np.maximum(cap, 1 / (shares > 0).sum(axis=1, keepdims=True)))
    return np.asarray(cut / cut.sum(axis=1, keepdims=True))
