"""Bugs by which private records of one unit move what other units contribute, or leave in a log line.

None of them breaks the bound of a single contribution.
"""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from datalens_service.data.dataset import Dataset
from datalens_service.data.sandbox import encoder
from datalens_service.data.shard_batches import ShardSampler
from datalens_service.evaluation.metrics import downstream
from datalens_service.jobs import execute
from datalens_service.mechanisms import CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.mechanisms.cross_product import OuterProductFactors
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods import private_evolution, public_votes
from datalens_service.methods.descent import denoiser_gradients
from datalens_service.methods.last_layer import guided, rejection
from datalens_service.methods.sums import mixture, moments, pooled_moments, record_sums, shapes
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.shard_teachers import Question, image_votes
from datalens_service.models.encoders.network import EncoderNetwork
from datalens_service.models.generators import pool
from datalens_service.models.generators.installed import InstalledGenerator
from datalens_service.models.generators.pool import PublicCells
from datalens_service.models.teachers.kernel import KernelTeachers
from datalens_service.privacy import randomness
from datalens_service.privacy.randomness import NoiseSource

from .plant import Plant, replaced

# What a plant calls in the place of the product's.
layer_gradients, class_vectors, class_offsets = (
    guided.layer_gradients,
    moments.class_vectors,
    pooled_moments.class_offsets,
)
described_images, nearest_cells = rejection.described_images, public_votes.nearest_cells
nearest_candidates = private_evolution.nearest_candidates
image_vectors = record_sums.ImageVectors.vectors


def centred_gradients(rows: Rows, layer: guided.Layer) -> OuterProductFactors:
    """Features less their private mean."""
    made = layer_gradients(rows, layer)
    return made._replace(left=made.left - made.left.mean(axis=0))


def encoders_normalise_by_all_records(patch: pytest.MonkeyPatch) -> None:
    """Features of a public encoder less their mean over the private set, as batch normalisation does."""
    encode = EncoderNetwork.encode

    def normalised(self: EncoderNetwork, images: np.ndarray) -> np.ndarray:
        features = encode(self, images)
        return features - features.mean(axis=0)

    patch.setattr(EncoderNetwork, "encode", normalised)


def an_encoder_sees_all_records_at_once(patch: pytest.MonkeyPatch) -> None:
    """As one runs a graph where speed counts; this one has layers that look across a batch."""

    def together(graph: bytes, images: np.ndarray) -> np.ndarray:
        pixels = np.repeat(images.transpose(0, 3, 1, 2).astype(np.float32) / 255, 3, axis=1)
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        features = session.run(None, {"images": pixels})[0].reshape(len(images), -1)
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    patch.setattr(encoder, "encode", together)


def balanced_gradients(rows: Rows, layer: guided.Layer) -> OuterProductFactors:
    """A balanced loss: classes weigh as they are rare among private records."""
    made, labels = layer_gradients(rows, layer), rows.labels
    weights = len(labels) / (labels.max() + 1) / np.maximum(np.bincount(labels), 1)
    return made._replace(right=made.right * np.minimum(weights, 1)[labels][:, None].astype(np.float32))


def hard_gradients(rows: Rows, layer: guided.Layer) -> OuterProductFactors:
    """Those of the larger errors."""
    made = layer_gradients(rows, layer)
    lengths = np.linalg.norm(made.right, axis=1)
    return made._replace(right=made.right * (lengths >= np.median(lengths))[:, None].astype(np.float32))


def gradients_are_divided_by_the_private_count(patch: pytest.MonkeyPatch) -> None:
    """The number of records that are there, instead of the declared one."""
    start = guided.NoisyGradientDescent.__init__

    def counted(self: guided.NoisyGradientDescent, parameters: Any, records: PrivateRecords, *others: Any) -> None:
        start(self, parameters, records, *others)
        self._divisor = len(records._vault.rows().labels)

    patch.setattr(guided.NoisyGradientDescent, "__init__", counted)


LOSSES: list[float] = []


def watched_gradients(rows: Rows, layer: guided.Layer) -> OuterProductFactors:
    """What a module remembers leaves a contribution."""
    made = layer_gradients(rows, layer)
    LOSSES.append(float(np.linalg.norm(made.right, axis=1).mean()))
    return made


def steps_shrink_with_the_private_loss(patch: pytest.MonkeyPatch) -> None:
    """A schedule that looks at the training loss."""
    apply_gradient = guided.NoisyGradientDescent.apply_gradient

    def scheduled(self: guided.NoisyGradientDescent, released: np.ndarray) -> None:
        apply_gradient(self, released * (LOSSES[-1] if LOSSES else 1.0))

    patch.setattr(guided, "layer_gradients", watched_gradients)
    patch.setattr(guided.NoisyGradientDescent, "apply_gradient", scheduled)


def components_are_dealt_evenly(patch: pytest.MonkeyPatch) -> None:
    """Records of a class take its components in turn: one record less, and all behind it change theirs."""

    def in_turn(points: np.ndarray, labels: np.ndarray, centres: np.ndarray) -> np.ndarray:
        turns = np.array([np.count_nonzero(labels[:row] == label) for row, label in enumerate(labels)], dtype=np.int64)
        return labels * centres.shape[1] + turns % centres.shape[1]

    patch.setattr(mixture, "nearest", in_turn)


def centres_start_at_records(patch: pytest.MonkeyPatch) -> None:
    """As k-means usually starts."""
    components = mixture.MixtureRun._components.fget

    def at_records(self: mixture.MixtureRun) -> Any:
        first, fit = self._fit is None, components(self)
        if first:
            images = self._records._vault.rows().values
            fit.centres = fit.centres + self._start.view.coordinates(images, self._start.fit.basis)[-1]
        return fit

    patch.setattr(mixture.MixtureRun, "_components", property(at_records))


def exact_residuals(rows: Rows, measured: moments.Measured) -> GroupedVectors:
    """From the means of the records themselves."""
    made = class_vectors(rows, measured)
    means = np.array([made.values[rows.labels == label].mean(axis=0) for label in rows.labels])
    return made._replace(values=(made.values - means) / measured.residual_norm)


def exact_offsets(rows: Rows, measured: pooled_moments.Measured) -> GroupedVectors:
    """From the mean of the records themselves."""
    made = class_offsets(rows, measured)
    return made._replace(values=made.values - made.values.mean(axis=0))


def shapes_are_centred(patch: pytest.MonkeyPatch) -> None:
    """Vectors of signed distances less their private mean, instead of the public origin."""
    vectors = shapes._vectors

    def centred(rows: Rows, encoding: shapes.Encoding) -> np.ndarray:
        made = vectors(rows, encoding)
        return np.asarray(made - made.mean(axis=0))

    patch.setattr(shapes, "_vectors", centred)


def centred_descriptions(rows: Rows, seen: rejection.Described) -> GroupedVectors:
    """Less their mean."""
    made = described_images(rows, seen)
    return made._replace(values=made.values - made.values.mean(axis=0))


def noise_of_records_follows_their_position(patch: pytest.MonkeyPatch) -> None:
    """A denoiser's noise is drawn in the order of the batch: who comes behind a missing record gets another one."""
    choose = denoiser_gradients.NoiseBank.choose

    def in_turn(
        self: denoiser_gradients.NoiseBank, hashes: torch.Tensor, draws: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return choose(self, torch.arange(len(hashes)) << 60, draws)

    patch.setattr(denoiser_gradients.NoiseBank, "choose", in_turn)


def clipping_at_the_median_length(patch: pytest.MonkeyPatch) -> None:
    """The clipping norm is the median length of private images."""

    def median(self: record_sums.ImageVectors, images: np.ndarray) -> np.ndarray:
        vectors = image_vectors(self, images)
        return np.asarray(vectors / np.median(np.linalg.norm(vectors, axis=1)))

    patch.setattr(record_sums.ImageVectors, "vectors", median)


def pixels_are_scaled_to_the_brightest(patch: pytest.MonkeyPatch) -> None:
    """Divided by the largest private value instead of by 255."""

    def scaled(self: record_sums.ImageVectors, images: np.ndarray) -> np.ndarray:
        return image_vectors(self, images) * (255.0 / max(1, int(np.median(images.max(axis=(1, 2, 3))))))

    patch.setattr(record_sums.ImageVectors, "vectors", scaled)


def pixels_are_less_the_mean_brightness(patch: pytest.MonkeyPatch) -> None:
    """Lengths are measured from the mean brightness of private images instead of from a constant."""
    start = record_sums.ImageVectors.__init__

    def centred(self: record_sums.ImageVectors, *lengths: Any) -> None:
        start(self, *lengths)
        self._center = None

    def vectors(self: record_sums.ImageVectors, images: np.ndarray) -> np.ndarray:
        self._center = float(images.mean()) / 255 if self._center is None else self._center
        return image_vectors(self, images)

    patch.setattr(record_sums.ImageVectors, "__init__", centred)
    patch.setattr(record_sums.ImageVectors, "vectors", vectors)


def distinct_vectors(rows: Rows, measured: moments.Measured) -> GroupedVectors:
    """Duplicates are removed: whether a record counts depends on who else brought it."""
    made = class_vectors(rows, measured)
    _, first = np.unique(rows.values.reshape(len(rows.labels), -1), axis=0, return_index=True)
    again = np.ones(len(made.values), dtype=bool)
    again[first] = False
    return made._replace(values=np.where(again[:, None], 0.0, made.values))


def images_of_all_shards_are_normalised(patch: pytest.MonkeyPatch) -> None:
    """Teachers see images less the mean image of all records."""
    start = ShardSampler.__init__

    def normalised(self: ShardSampler, images: np.ndarray, *others: Any, **named: Any) -> None:
        start(self, images - (images.mean(axis=0) // 2).astype(np.uint8), *others, **named)

    patch.setattr(ShardSampler, "__init__", normalised)


def kernels_are_as_wide_as_records_lie(patch: pytest.MonkeyPatch) -> None:
    """The bandwidth of all teachers is the spread of all records."""
    start = KernelTeachers.__init__

    def scaled(self: KernelTeachers, *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        records = self._records if self._records.is_floating_point() else self._project(self._records)
        self._records = records / records.std()

    patch.setattr(KernelTeachers, "__init__", scaled)


def measured_votes(teachers: Any, question: Question) -> Iterator[Any]:
    """In lengths of the median vote of a block."""
    for block in image_votes(teachers, question):
        gradients = getattr(block, "gradients", block)
        measured = gradients / gradients.norm(dim=-1).median().clamp_min(1e-3)
        yield measured if gradients is block else block._replace(gradients=measured)


def holdout_images_are_standardised(patch: pytest.MonkeyPatch) -> None:
    """A classifier sees the images of a hold-out as bright as their brightest."""
    predicted = downstream.predicted

    def standardised(images: Any, labels: Any, seen: np.ndarray, *others: Any, **named: Any) -> Any:
        brighter = np.rint(seen * (255.0 / seen.max(axis=(1, 2, 3)).mean())).clip(0, 255).astype(np.uint8)
        return predicted(images, labels, brighter, *others, **named)

    patch.setattr(downstream, "predicted", standardised)


def noise_repeats_after_a_chunk(patch: pytest.MonkeyPatch) -> None:
    """What was drawn for the first coordinates is used for all."""
    exact = NoiseSource.discrete_gaussian

    def repeated(self: NoiseSource, shape: tuple[int, ...], stddev: int) -> np.ndarray:
        size = int(np.prod(shape))
        return np.resize(exact(self, (min(size, randomness._CHUNK),), stddev), shape)

    patch.setattr(NoiseSource, "discrete_gaussian", repeated)


def class_counts_are_logged(patch: pytest.MonkeyPatch) -> None:
    """A line that helps with debugging."""
    load = execute.load_dataset

    def counted(*arguments: Any) -> Dataset:
        dataset = load(*arguments)
        execute.log.info(f"job started on {np.bincount(dataset.train.labels)}", lease_token=1)
        return dataset

    patch.setattr(execute, "load_dataset", counted)


def a_count_is_logged_under_an_allowed_name(patch: pytest.MonkeyPatch) -> None:
    """A private number where a public one belongs."""
    load = execute.load_dataset

    def counted(*arguments: Any) -> Dataset:
        dataset = load(*arguments)
        execute.log.info("job started", lease_token=int((dataset.train.labels == 0).sum()))
        return dataset

    patch.setattr(execute, "load_dataset", counted)


def empty_classes_are_warned_of(patch: pytest.MonkeyPatch) -> None:
    """A library's warning about private labels."""
    load = execute.load_dataset

    def warned(*arguments: Any) -> Dataset:
        dataset = load(*arguments)
        if dataset.train.labels.max() + 1 < dataset.schema.num_classes:
            logging.getLogger("library").warning("a class has no records")
        return dataset

    patch.setattr(execute, "load_dataset", warned)


def fitted_cells(rows: Rows, cells: public_votes.Cells) -> Votes:
    """The features by which records are near public images are fitted to these records."""
    network = cells.view.network
    network.center.copy_(torch.from_numpy(network.encoder.encode(rows.values)).mean(dim=0))
    return nearest_cells(rows, cells)


def ties_are_broken_by_the_order_of_records(patch: pytest.MonkeyPatch) -> None:
    """Records that are about as near to several cells take these in turn."""

    def in_turn(self: PublicCells, features: np.ndarray) -> np.ndarray:
        distances = ((features[:, None] - self.centres) ** 2).sum(axis=2)
        tied = distances <= distances.min(axis=1, keepdims=True) + 0.5
        return np.array([np.flatnonzero(row)[number % row.sum()] for number, row in enumerate(tied)], dtype=np.int64)

    patch.setattr(PublicCells, "nearest", in_turn)


def a_unit_votes_with_every_record(patch: pytest.MonkeyPatch) -> None:
    """Each record of a unit is a whole vote."""
    patch.setattr(CellVotes, "_shares", lambda self, units, counts: self.grid * counts)


VOTERS: list[np.ndarray] = []
"""Images that voted last."""


def remembered_cells(rows: Rows, cells: public_votes.Cells) -> Votes:
    """Images stay behind."""
    VOTERS[:] = [rows.values]
    return nearest_cells(rows, cells)


def images_that_voted_join_the_pool(patch: pytest.MonkeyPatch) -> None:
    """What a denoiser starts from holds private images beside public ones."""
    pack = pool.pack

    def joined(images: np.ndarray, weights: np.ndarray, soft_labels: np.ndarray) -> pool.Tensors:
        more = np.ones((len(VOTERS[-1]), weights.shape[1]), dtype=np.float32)
        return pack(
            np.concatenate([images, VOTERS[-1]]), *(np.concatenate([one, more]) for one in (weights, soft_labels))
        )

    patch.setattr(public_votes, "nearest_cells", remembered_cells)
    patch.setattr(public_votes, "pack", joined)


def remembered_candidates(rows: Rows, candidates: private_evolution.Candidates) -> Votes:
    """Images stay behind."""
    VOTERS[:] = [rows.values]
    return nearest_candidates(rows, candidates)


def private_images_are_varied(patch: pytest.MonkeyPatch) -> None:
    """A generator is handed the brightest images that voted, where it should vary its own."""
    variations = InstalledGenerator.variations

    def of_voters(self: InstalledGenerator, images: np.ndarray, label: int, seed: int) -> np.ndarray:
        brightest = np.argsort(-VOTERS[-1].mean(axis=(1, 2, 3)), kind="stable")
        return variations(self, np.resize(VOTERS[-1][brightest], images.shape), label, seed)

    patch.setattr(private_evolution, "nearest_candidates", remembered_candidates)
    patch.setattr(InstalledGenerator, "variations", of_voters)


PLANTS = (
    Plant("a generator that varies images that voted", "R6", private_images_are_varied),
    Plant("images that voted among those that a denoiser starts from", "R6", images_that_voted_join_the_pool),
    Plant(
        "features of public cells fitted to private records",
        "R6",
        replaced(public_votes, "nearest_cells", fitted_cells),
    ),
    Plant("ties of public cells broken by the order of records", "R6", ties_are_broken_by_the_order_of_records),
    Plant("a unit votes for public cells with every record", "R1", a_unit_votes_with_every_record),
    Plant(
        "guided features centred by their private mean", "R6", replaced(guided, "layer_gradients", centred_gradients)
    ),
    Plant("an encoder that normalises by the private set", "R6", encoders_normalise_by_all_records),
    Plant("an encoder of the owner's that sees all records at once", "R6", an_encoder_sees_all_records_at_once),
    Plant("components dealt evenly among the records of a class", "R6", components_are_dealt_evenly),
    Plant("residuals from exact private class means", "R6", replaced(moments, "class_residuals", exact_residuals)),
    Plant(
        "class means from the exact mean of all records", "R6", replaced(pooled_moments, "class_offsets", exact_offsets)
    ),
    Plant("shapes centred by their private mean", "R6", shapes_are_centred),
    Plant(
        "features of a tilt centred by their private mean",
        "R6",
        replaced(rejection, "described_images", centred_descriptions),
    ),
    Plant("noise of a denoiser's records by their position", "R6", noise_of_records_follows_their_position),
    Plant("gradients divided by the private number of records", "R4", gradients_are_divided_by_the_private_count),
    Plant("class counts in a log line", "S3", class_counts_are_logged),
    Plant("errors weighted by private class sizes", "R6", replaced(guided, "layer_gradients", balanced_gradients)),
    Plant("only the harder half of the records is summed", "R6", replaced(guided, "layer_gradients", hard_gradients)),
    Plant("steps shrink with the private loss", "R4", steps_shrink_with_the_private_loss),
    Plant("first centres lie at private records", "R4", centres_start_at_records),
    Plant("clipping norm is the private median length", "R6", clipping_at_the_median_length),
    Plant("pixels scaled by private brightness", "R6", pixels_are_scaled_to_the_brightest),
    Plant("pixels less the private mean brightness", "R6", pixels_are_less_the_mean_brightness),
    Plant("copies of another unit's record do not count", "R6", replaced(moments, "class_vectors", distinct_vectors)),
    Plant("teachers see images less the mean of all shards", "R3", images_of_all_shards_are_normalised),
    Plant("bandwidth of kernel teachers from all records", "R3", kernels_are_as_wide_as_records_lie),
    Plant("votes clipped at the median of all teachers", "R3", replaced(training_run, "image_votes", measured_votes)),
    Plant("hold-out images scaled by their brightness", "R26", holdout_images_are_standardised),
    Plant("noise repeats after the sampler's chunk", "R34", noise_repeats_after_a_chunk),
    Plant("a private count under an allowed name in the log", "S3", a_count_is_logged_under_an_allowed_name),
    Plant("a library warns of empty classes", "S3", empty_classes_are_warned_of),
)
