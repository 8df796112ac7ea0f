"""Private Evolution: private records vote for the images of a public generator that they are next to, round by round.

    images of the generator → noisy votes → those with votes are drawn again, and varied by the generator → votes …

Lin et al. 2024, "Differentially private synthetic data via foundation model APIs 1: images". Each class has its own
images. The generator is one that the operator installed; it sees labels, and images that it made itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.mechanisms import Account, CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.base import ExecutionOptions, Plan, WalledMethod, named
from datalens_service.methods.public_votes import capped_shares, plan_cells
from datalens_service.methods.sums.record_sums import StatelessRun, calibrated
from datalens_service.models.encoders import AnyEncoder, ScatteringEncoder
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.installed import InstalledGenerator, find_installed
from datalens_service.models.generators.pool import PublicCells, choose
from datalens_service.models.public_source import PublicEncoder, PublicGenerator
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, NoiseSource, TrainingRandomness
from datalens_service.strict import Integer, Number

if TYPE_CHECKING:
    from datalens_service.models.classifiers.encoded_features import FeatureBasis


_DIMENSIONS: Final = 64


class PrivateEvolution(WalledMethod):
    """Parameters of rounds of votes for the images of a generator."""

    name: Literal["private_evolution"] = "private_evolution"
    generator: str = Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Of an installed package (`datalens plugins list`), which makes and varies images.",
    )
    encoder: Annotated[AnyEncoder, Field(discriminator="name"), BeforeValidator(named)] = Field(
        default=ScatteringEncoder(), description="Public function by which images are near each other."
    )
    rounds: Integer = Field(default=4, ge=1, le=50, description="Of votes, which share μ² evenly.")
    candidates: Integer | None = Field(
        default=None,
        ge=2,
        le=2**14,
        description="Images of a class that are voted on in a round. Left out: so many that one gets votes of ten "
        "times the noise, were all equal.",
    )
    threshold: Number = Field(default=1.0, ge=0, le=10, description="Votes that count, in deviations of the noise.")
    cap: Number = Field(default=0.2, gt=0, le=1, description="Largest share of a class that one image gives.")
    images: Integer = Field(default=200, ge=1, le=10_000, description="Images of a class that the result holds.")

    def plan(self, schema: Schema, units: int) -> Plan:
        """One release of votes per round."""
        self.encoder.check(schema)
        self.public_generator()
        part = units // self.rounds
        votes = CellVotes(
            num_groups=schema.num_classes,
            cells=self.candidates or plan_cells(schema, part),
            noise_stddev=MAXIMUM_NOISE_STDDEV,
        )
        return Plan(releases=(calibrated(votes, part).model_copy(update={"count": self.rounds}),))

    def public_encoder(self) -> PublicEncoder | None:
        """The encoder, if it has weights."""
        return self.encoder.source()

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        """What images are made of."""
        return (
            f"Images are made by the installed generator {self.generator}. The guarantee does not cover what it was "
            "trained on. It makes nothing that it could not make before: one of another kind of image teaches little.",
        )

    def public_generator(self) -> PublicGenerator:
        """The one that was named, with its package."""
        return find_installed(self.generator)

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> PrivateEvolutionRun:
        """A run of the rounds."""
        return PrivateEvolutionRun(self, plan, records, randomness, options)


class Candidates(NamedTuple):
    """Public: how images are seen, and of each class those that are voted on."""

    view: FeatureBasis
    of_class: tuple[PublicCells, ...]


def nearest_candidates(rows: Rows, candidates: Candidates) -> Votes:
    """Contribution: one vote per record, for the image of its own class that it is next to."""
    features = candidates.view.features(rows.values)
    nearest = np.stack([images.nearest(features) for images in candidates.of_class])
    return Votes(nearest[rows.labels, np.arange(len(features))], rows.labels, rows.units)


class PrivateEvolutionRun(StatelessRun):
    """One release per round."""

    def __init__(
        self,
        parameters: PrivateEvolution,
        plan: Plan,
        records: PrivateRecords,
        randomness: TrainingRandomness,
        options: ExecutionOptions,
    ) -> None:
        self._parameters, self._records, self._randomness = parameters, records, randomness
        self._options = options
        mechanism, self._rounds = plan.releases[0].mechanism, plan.releases[0].count
        if not isinstance(mechanism, CellVotes):
            raise TypeError("the releases of an evolution are of votes")
        self._mechanism = mechanism
        self._generator = InstalledGenerator(parameters.generator, records.schema)
        self._view: FeatureBasis | None = None

    @property
    def steps(self) -> int:
        """One for each round."""
        return self._rounds

    def may_stop_before(self, step: int) -> bool:
        """After the first round there are images that were voted for."""
        return step > 0

    def step(self, step: int, account: Account, noise: NoiseSource) -> None:
        """Votes for the images of this round: the generator's own at first, then variations of those with votes."""
        count = self._mechanism.cells
        self._images = self._vary(count, step) if step else self._draw(count)
        features = np.split(self._seen().features(self._images), self._records.schema.num_classes)
        candidates = Candidates(self._seen(), tuple(map(PublicCells, features)))
        votes = self._records.release(
            self._mechanism, nearest_candidates, candidates, step=step, account=account, noise=noise
        )
        noise_in_votes = self._mechanism.noise_stddev / self._mechanism.grid
        shares = capped_shares(votes, self._parameters.threshold * noise_in_votes, self._parameters.cap)
        of_class = np.eye(len(shares)).repeat(count, axis=0)
        self._weights = (of_class * shares.reshape(-1, 1)).astype(np.float32)

    def result(self) -> Generator:
        """Variations of the images that were voted for last."""
        count, schema = self._parameters.images, self._records.schema
        weights = np.eye(schema.num_classes, dtype=np.float32).repeat(count, axis=0)
        return Generator("evolved", schema, {}, {"images": self._vary(count, self._rounds), "weights": weights})

    def _draw(self, count: int) -> Images:
        """The generator's images of every class."""
        seed, classes = self._randomness.seed("random images"), range(self._records.schema.num_classes)
        return np.concatenate([self._generator.random(count, label, seed) for label in classes])

    def _vary(self, count: int, round_: int) -> Images:
        """So many variations of each class, of images in proportion to their votes."""
        labels: Labels = np.arange(self._records.schema.num_classes).repeat(count)
        chosen = choose({"weights": self._weights}, labels, self._randomness.numpy("chosen images", round_))
        parents = np.split(self._images[chosen], self._records.schema.num_classes)
        seed = self._randomness.seed("variations", round_)
        return np.concatenate([self._generator.variations(own, label, seed) for label, own in enumerate(parents)])

    def _seen(self) -> FeatureBasis:
        """Features along the leading directions of the generator's first images."""
        from datalens_service.models.classifiers.encoded_features import FeatureBasis

        if self._view is None:
            encoder, schema = self._parameters.encoder, self._records.schema
            dimensions = min(_DIMENSIONS, len(self._images), encoder.dimensions(schema))
            view = FeatureBasis.from_encoder(encoder, schema, self._options.device, dimensions, self._options.encoder)
            view.fit(self._images, 0.0, self._randomness.seed("basis"))
            self._view = view
        return self._view
