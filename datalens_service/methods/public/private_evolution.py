"""Private Evolution: private records vote for the nearest images of a public generator, round by round.

    images of the generator → noisy votes → those with votes are drawn again, and varied by the generator → votes …

Lin et al. 2024, "Differentially private synthetic data via foundation model APIs 1: images". Each class has its own
images. The generator draws by rules, or is one that the operator installed; it sees labels, and images that it made
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from datalens_service.base.fields import Integer, Number
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.mechanisms import CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import Method, Plan, named
from datalens_service.methods.facts import NEXT_TO_NONE, Facts
from datalens_service.methods.public.public_votes import capped_shares, plan_cells
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.models.encoders import AnyEncoder, ScatteringEncoder
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.installed import InstalledGenerator, check_installed, find_installed
from datalens_service.models.generators.pool import PublicCells, choose
from datalens_service.models.public_source import PublicInputs
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, TrainingRandomness

if TYPE_CHECKING:
    from datalens_service.models.classifiers.encoded_features import FeatureBasis


_DIMENSIONS: Final = 64
# Fitted with a small diffusion model on five classes of CIFAR-10 and on faces (docs/public-data.md).
_VOTES_PER_CANDIDATE: Final = 2
"""Votes that a candidate gets if all get the same number, in standard deviations of the noise."""
_CELLS: Final = 8
"""Cells along a side of an image that is averaged."""
_WEIGHT_OF_CELLS: Final = 2.0
"""Factor of averages beside features."""
_TRAINED: Final = "The guarantee does not cover what it was trained on. "
_NOTHING_ELSE: Final = "It makes nothing that it could not make before: one of another kind of image teaches little."


class PrivateEvolution(Method):
    """Parameters of rounds of votes for the images of a generator."""

    facts = Facts(
        title="Private Evolution", summary="noisy votes for images of a generator, in rounds",
        result="generator", public_images=None, levels=None, memory=NEXT_TO_NONE,
        measured_as="private_evolution", image_seconds=1e-4,
    )  # fmt: skip

    name: Literal["private_evolution"] = "private_evolution"
    generator: str = Field(
        default="rendered",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Installed generator (`datalens plugins list`), which makes and varies images: `rendered` draws "
        "shapes, strokes and textures by rules; `diffusers.NAME` is a local pipeline; others are of packages.",
    )
    encoder: Annotated[AnyEncoder, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=ScatteringEncoder(), description="Public function by which images are near each other."
    )
    rounds: Integer = Field(default=4, ge=1, le=50, description="Rounds of votes, which share μ² evenly.")
    candidates: Integer | None = Field(
        default=None,
        ge=2,
        le=2**14,
        description="Images of a class that are voted on in a round. Left out: planned so that the average number of "
        "votes for an image is twice the standard deviation of the noise.",
    )
    threshold: Number = Field(default=1.0, ge=0, le=10, description="Votes that count, in deviations of the noise.")
    cap: Number = Field(default=0.2, gt=0, le=1, description="Largest share of a class that one image gives.")
    images: Integer = Field(default=200, ge=1, le=10_000, description="Images of a class that the result holds.")

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        self.encoder.check(schema)
        check_installed(self.generator, schema)
        part = ledger_units // self.rounds
        votes = CellVotes(
            num_groups=schema.num_classes,
            cells=self.candidates or plan_cells(schema, part, _VOTES_PER_CANDIDATE),
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return Plan(releases=(calibrate(votes, part).model_copy(update={"count": self.rounds}),))

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        trained = "" if find_installed(self.generator).untrained else _TRAINED
        return (f"Images are made by the installed generator {self.generator}. {trained}{_NOTHING_ELSE}",)

    def public_inputs(self) -> PublicInputs:
        return PublicInputs(encoder=self.encoder.source(), generator=find_installed(self.generator))

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        votes, rounds, schema = plan.releases[0].mechanism, plan.releases[0].count, records.schema
        if not isinstance(votes, CellVotes):
            raise TypeError("the releases of an evolution are of votes")
        population = _Population(
            InstalledGenerator(self.generator, schema, inputs.options.device), schema, inputs.randomness
        )
        images = population.draw(votes.cells)
        view = self._fit_view(images, schema, inputs)

        def outcome() -> Outcome:
            weights = np.eye(schema.num_classes, dtype=np.float32).repeat(self.images, axis=0)
            tensors: dict[str, NDArray[Any]] = {"images": population.vary(self.images, rounds), "weights": weights}
            return Outcome(Generator("evolved", schema, {}, tensors))

        for round_ in range(rounds):
            if round_:
                images = population.vary(votes.cells, round_)
            features = np.split(view.features(images), schema.num_classes)
            candidates = Candidates(view, tuple(map(PublicCells, features)))
            released = yield Ask(records, votes, nearest_candidates, candidates, outcome)
            shares = capped_shares(released, self.threshold * votes.noise_stddev / votes.grid, self.cap)
            of_class = np.eye(len(shares)).repeat(votes.cells, axis=0)
            population.replace(images, (of_class * shares.reshape(-1, 1)).astype(np.float32))
        return outcome()

    def _fit_view(self, images: Images, schema: Schema, inputs: RunInputs) -> CandidateView:
        """Fit features along the leading directions of the generator's first images."""
        from datalens_service.models.classifiers.encoded_features import FeatureBasis

        dimensions = min(_DIMENSIONS, len(images), self.encoder.dimensions(schema))
        options = inputs.options
        view = FeatureBasis.from_encoder(self.encoder, schema, options.device, dimensions, options.encoder)
        view.fit(images, 0.0, inputs.randomness.seed("basis"))
        return CandidateView(view)


class _Population:
    """Released: images of every class that a generator made, and how often each of them is varied."""

    def __init__(self, generator: InstalledGenerator, schema: Schema, randomness: TrainingRandomness) -> None:
        self._generator, self._schema, self._randomness = generator, schema, randomness

    def draw(self, count: int) -> Images:
        """Draw so many of the generator's images of each class, to begin with."""
        seed, classes = self._randomness.seed("random images"), range(self._schema.num_classes)
        return np.concatenate([self._generator.random(count, label, seed) for label in classes])

    def replace(self, images: Images, weights: NDArray[np.float32]) -> None:
        """Replace the images by those that were voted on, with their votes."""
        self._images, self._weights = images, weights

    def vary(self, count: int, round_: int) -> Images:
        """Draw so many variations of each class, of images in proportion to their votes."""
        labels: Labels = np.arange(self._schema.num_classes).repeat(count)
        chosen = choose({"weights": self._weights}, labels, self._randomness.numpy("chosen images", round_))
        parents = np.split(self._images[chosen], self._schema.num_classes)
        seed = self._randomness.seed("variations", round_)
        return np.concatenate([self._generator.variations(own, label, seed) for label, own in enumerate(parents)])


class CandidateView(NamedTuple):
    """Public: features of an encoder, and beside them the averages of a few cells of the image.

    Wavelets see edges, but hardly which side of one is brighter: to them a digit is nearer to its negative than to
    other digits of its class.
    """

    encoded: FeatureBasis

    def features(self, images: Images) -> NDArray[np.float32]:
        """Return features (n, dimensions) of at most length 1, each row of its own image alone."""
        coarse = average_cells(images) * _WEIGHT_OF_CELLS
        both = np.concatenate([self.encoded.features(images), coarse], axis=1)
        return np.asarray(both / np.float32((1 + _WEIGHT_OF_CELLS**2 / 4) ** 0.5))


def average_cells(images: Images) -> NDArray[np.float32]:
    """Average images in at most 8×8 cells and return them about the middle, (n, cells · channels), ½ long at most."""
    height, width = images.shape[1:3]
    rows, columns = (np.unique(np.arange(_CELLS) * side // _CELLS) for side in (height, width))
    # Sums of whole numbers are exact, in whatever order they are added.
    sums = np.add.reduceat(np.add.reduceat(images.astype(np.int64), rows, axis=1), columns, axis=2)
    pixels = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))[None, :, :, None]
    cells = (sums / (255 * pixels) - 0.5).reshape(len(images), -1)
    return np.asarray(cells / cells.shape[1] ** 0.5, dtype=np.float32)


class Candidates(NamedTuple):
    """Public: the view of images, and the candidates of each class."""

    view: CandidateView
    of_class: tuple[PublicCells, ...]


def nearest_candidates(rows: Rows, candidates: Candidates) -> Votes:
    """Contribution: one vote per record, for the nearest image of its own class."""
    features = candidates.view.features(rows.values)
    nearest = np.stack([images.nearest(features) for images in candidates.of_class])
    return Votes(nearest[rows.labels, np.arange(len(features))], rows.labels, rows.units)
