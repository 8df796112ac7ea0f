"""Public votes: each private record votes for the nearest public image.

One release: noisy votes per class and public cell → how likely each cell is of each class → the pool's images, drawn in
proportion, with soft labels, or drawn by a denoiser of the pool. Lin et al. 2024, "Differentially private
synthetic data via foundation model APIs 1: images", vote so for generated images; here the pool is fixed, and its cells
are wide enough to collect votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.base.arrays import Floats
from datalens_service.base.fields import Flag, Integer, Number
from datalens_service.base.progress import tell_part
from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms import CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import NEXT_TO_NONE, Facts
from datalens_service.methods.public_start import describe_source, spread_over
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.models.encoders import AnyEncoder, ScatteringEncoder
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import PublicCells, pack
from datalens_service.models.public_source import PublicInputs
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

if TYPE_CHECKING:
    from datalens_service.models.classifiers.encoded_features import FeatureBasis
    from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser


_VOTES_PER_CELL: Final = 10
"""Votes per cell over the noise: with fewer votes a cell tells nothing, with more it says little of what is in it."""
_FEWEST, _MOST = 8, 2**14
_DIMENSIONS: Final = 64
_FITTED: Final = 4_000
_LEARNED: Final = 20_000
_EMBEDDING: Final = 0.5
"""Part of the time before the votes in which the pool is embedded."""
_LENGTH: Final = 20
"""The work before the votes takes this many times as long as they do."""
_HIDING_STDDEV: Final = 1.0
"""Noise on pixels from −1 to 1 that hides the image at which a denoiser starts."""


class PublicVotes(Method):
    """Parameters of votes for public images."""

    facts = Facts(
        title="Public votes", summary="noisy votes for public images",
        result="generator", public_images="material", levels=None, memory=NEXT_TO_NONE,
        measured_as="public_votes", image_seconds=1e-4,
    )  # fmt: skip

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
        return self.verbatim

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        self.encoder.check(schema)
        votes = CellVotes(
            num_groups=schema.num_classes,
            cells=self.cells or plan_cells(schema, ledger_units, _VOTES_PER_CELL),
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return Plan(releases=(calibrate(votes, ledger_units),))

    @property
    def crops(self) -> bool:
        """Tell whether crops of public images are handed out beside them, which a network of photographs can see."""
        return self.verbatim and self.public_inputs().has_weights

    def public_inputs(self) -> PublicInputs:
        return PublicInputs(encoder=self.encoder.source())

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        return {0: _LENGTH}

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.models.vote_labels import label_softly

        votes = plan.releases[0].mechanism
        if not isinstance(votes, CellVotes):
            raise TypeError("the release of public votes is one of votes")
        pool = self._cut_pool(records.schema, votes.cells, inputs)
        denoiser = None if self.verbatim else _fit_denoiser(records.schema, inputs)
        released = yield Ask(records, votes, nearest_cells, Cells(pool.view, pool.cells))
        released = released[:, : len(pool.cells.centres)]
        soft = label_softly(pool.features, pool.cells.centres, released)
        shares = capped_shares(released, self.threshold * votes.noise_stddev / votes.grid, self.cap).T
        sizes = np.bincount(pool.members, minlength=len(shares))
        # An image that could be of many classes tells little of any.
        weights = soft * (shares / np.maximum(sizes, 1)[:, None])[pool.members]
        tensors = pack(pool.images, weights.astype(np.float32), soft)
        if denoiser is None:
            return Outcome(Generator("pool", records.schema, {}, tensors))
        from datalens_service.models.generators.denoiser.diffusion import Start

        finished = denoiser.finish(Start("pool", {}, tensors), _HIDING_STDDEV)
        return Outcome(Generator("diffusion", records.schema, *finished))

    def _cut_pool(self, schema: Schema, cells: int, inputs: RunInputs) -> _Pool:
        """Cut the public images into cells; their labels are not used."""
        from datalens_service.models.classifiers.encoded_features import FeatureBasis
        from datalens_service.models.generators.augmentation import with_crops

        randomness, options = inputs.randomness, inputs.options
        images = np.asarray(inputs.pool.images)
        if self.crops:
            images = with_crops(images, randomness.numpy("crops"))
        seen = spread_over(inputs.pool, _FITTED).images
        dimensions = min(_DIMENSIONS, len(seen), self.encoder.dimensions(schema))
        view = FeatureBasis.from_encoder(self.encoder, schema, options.device, dimensions, options.encoder)
        view.fit(seen, 0.0, randomness.seed("basis"))
        features = view.features(images, tell_part(options.tell, 0.0, _EMBEDDING))
        fitted = PublicCells.fit(features, cells, randomness.seed("cells"))
        return _Pool(images, view, features, fitted, fitted.nearest(features))


class _Pool(NamedTuple):
    """Public images, and the cells that they are cut into."""

    images: Images
    view: FeatureBasis
    features: NDArray[np.float32]
    cells: PublicCells
    members: NDArray[np.int64]
    """(images,) the cell of each image."""


def _fit_denoiser(schema: Schema, inputs: RunInputs) -> PublicDenoiser:
    from datalens_service.models.generators.denoiser.public_denoiser import PublicDenoiser

    told = tell_part(inputs.options.tell, _EMBEDDING, 1.0)
    learned, digest = spread_over(inputs.pool, _LEARNED).images, describe_source(inputs.pool).sha256
    return PublicDenoiser.from_images(schema, learned, digest, inputs.options.public_models, told)


def plan_cells(schema: Schema, ledger_units: int, votes_per_cell: float) -> int:
    """Choose the number of cells that the records of a class pay for.

    Args:
        votes_per_cell: The average number of votes for a cell, in standard deviations of the noise.
    """
    evidence = schema.num_units * mu_of_ledger_units(ledger_units) / schema.num_classes
    return min(_MOST, max(_FEWEST, round(evidence / votes_per_cell)))


class Cells(NamedTuple):
    """Public: the view of images, and the cells of a pool."""

    view: FeatureBasis
    cells: PublicCells


def nearest_cells(rows: Rows, cells: Cells) -> Votes:
    """Contribution: one vote per record, for the cell nearest to its image."""
    return Votes(cells.cells.nearest(cells.view.features(rows.values)), rows.labels, rows.units)


def capped_shares(votes: Floats, least: float, cap: float) -> Floats:
    """Return shares (classes, cells) of each class, none above `cap` unless too few cells are left for that.

    Args:
        votes: (classes, cells) noisy.
        least: Cells with fewer votes count as empty, but for the fullest of a class.
        cap: Largest share of a cell.
    """
    kept = np.where(votes >= np.minimum(least, votes.max(axis=1, keepdims=True)), np.maximum(votes, 0), 0)
    kept[kept.sum(axis=1) == 0] = 1.0
    shares = kept / kept.sum(axis=1, keepdims=True)
    cut = np.minimum(shares, np.maximum(cap, 1 / (shares > 0).sum(axis=1, keepdims=True)))
    return np.asarray(cut / cut.sum(axis=1, keepdims=True))
