"""Bugs by which private records of one unit move what other units contribute, or leave in a log line.

None of them breaks the bound of a single contribution.
"""

import logging
from typing import Any

import numpy as np
import onnxruntime
import torch

from datalens_service.data.intake.sandbox import encoder
from datalens_service.data.shard_batches import ShardSampler
from datalens_service.evaluation.metrics import downstream
from datalens_service.jobs import execute
from datalens_service.mechanisms import CellVotes
from datalens_service.methods.descent import denoiser_gradients
from datalens_service.methods.last_layer import guided, rejection
from datalens_service.methods.public import private_evolution, public_votes
from datalens_service.methods.sums import mixture, moments, pooled_moments, record_sums, shapes
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.training_run import image_votes
from datalens_service.models.encoders.network import EncoderNetwork
from datalens_service.models.generators.installed import InstalledGenerator
from datalens_service.models.generators.pool import PublicCells
from datalens_service.models.teachers.kernel import KernelTeachers
from datalens_service.privacy import randomness
from datalens_service.privacy.randomness import NoiseSource

from .plant import around, change, plant, replaces, vault_of

# What a plant calls in the place of the product's.
layer_gradients, class_vectors, class_offsets = (
    guided.layer_gradients,
    moments.class_vectors,
    pooled_moments.class_offsets,
)
described_images, nearest_cells = rejection.described_images, public_votes.nearest_cells
nearest_candidates = private_evolution.nearest_candidates
image_vectors = record_sums.ImageVectors.vectors


@replaces("guided features centred by their private mean", "R6", guided, "layer_gradients")
def centred_gradients(rows, layer):
    """Features less their private mean."""
    made = layer_gradients(rows, layer)
    return made._replace(left=made.left - made.left.mean(axis=0))


@around("an encoder that normalises by the private set", "R6", EncoderNetwork, "encode")
def encoders_normalise_by_all_records(encode, self, images):
    """Features of a public encoder less their mean over the private set, as batch normalisation does."""
    features = encode(self, images)
    return features - features.mean(axis=0)


@replaces("an encoder of the owner's that sees all records at once", "R6", encoder, "encode")
def an_encoder_sees_all_records_at_once(graph, images):
    """As one runs a graph where speed counts; this one has layers that look across a batch."""
    pixels = np.repeat(images.transpose(0, 3, 1, 2).astype(np.float32) / 255, 3, axis=1)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    features = session.run(None, {"images": pixels})[0].reshape(len(images), -1)
    return features / np.linalg.norm(features, axis=1, keepdims=True)


@replaces("errors weighted by private class sizes", "R6", guided, "layer_gradients")
def balanced_gradients(rows, layer):
    """A balanced loss: classes weigh as they are rare among private records."""
    made, labels = layer_gradients(rows, layer), rows.labels
    weights = len(labels) / (labels.max() + 1) / np.maximum(np.bincount(labels), 1)
    return made._replace(right=made.right * np.minimum(weights, 1)[labels][:, None].astype(np.float32))


@replaces("only the harder half of the records is summed", "R6", guided, "layer_gradients")
def hard_gradients(rows, layer):
    """Those of the larger errors."""
    made = layer_gradients(rows, layer)
    lengths = np.linalg.norm(made.right, axis=1)
    return made._replace(right=made.right * (lengths >= np.median(lengths))[:, None].astype(np.float32))


@around("gradients divided by the private number of records", "R4", guided.Guided, "run")
def gradients_are_divided_by_the_private_count(run, self, plan, records, inputs):
    """The number of records that are there, instead of the declared one."""
    share = len(vault_of(records)._read().labels) / records.schema.num_units
    return run(self.model_copy(update={"learning_rate": self.learning_rate / share}), plan, records, inputs)


LOSSES: list[float] = []


@change(guided, "layer_gradients")
def watched_gradients(rows, layer):
    """What a module remembers leaves a contribution."""
    made = layer_gradients(rows, layer)
    LOSSES.append(float(np.linalg.norm(made.right, axis=1).mean()))
    return made


@around("steps shrink with the private loss", "R4", guided.NoisyGradientDescent, "follow", beside=watched_gradients)
def steps_shrink_with_the_private_loss(follow, self, released):
    """A schedule that looks at the training loss."""
    follow(self, released * (LOSSES[-1] if LOSSES else 1.0))


@replaces("components dealt evenly among the records of a class", "R6", mixture, "nearest")
def components_are_dealt_evenly(points, labels, centres):
    """Records of a class take its components in turn: one record less, and all behind it change theirs."""
    turns = np.array([np.count_nonzero(labels[:row] == label) for row, label in enumerate(labels)], dtype=np.int64)
    return labels * centres.shape[1] + turns % centres.shape[1]


RECORDS: list[np.ndarray] = []
"""Coordinates of those that were summed last."""


@change(moments, "class_vectors")
def remembered_records(rows, measured):
    """As the product, and not forgotten."""
    made = class_vectors(rows, measured)
    RECORDS[:] = [made.values]
    return made


@around("first centres lie at private records", "R4", mixture.MixtureFit, "__init__", beside=remembered_records)
def centres_start_at_records(start, self, *arguments):
    """At private records, from the shortest to the longest, as k-means starts at its data."""
    start(self, *arguments)
    by_length = np.linalg.norm(RECORDS[-1], axis=1).argsort()
    self.centres[:] = RECORDS[-1][by_length[np.linspace(0, len(by_length) - 1, self.centres.shape[1]).astype(int)]]


@replaces("residuals from exact private class means", "R6", moments, "class_residuals")
def exact_residuals(rows, measured):
    """From the means of the records themselves."""
    made = class_vectors(rows, measured)
    means = np.array([made.values[rows.labels == label].mean(axis=0) for label in rows.labels])
    return made._replace(values=(made.values - means) / measured.residual_norm)


@replaces("class means from the exact mean of all records", "R6", pooled_moments, "class_offsets")
def exact_offsets(rows, measured):
    """From the mean of the records themselves."""
    made = class_offsets(rows, measured)
    return made._replace(values=made.values - made.values.mean(axis=0))


@around("shapes centred by their private mean", "R6", shapes, "_vectors")
def shapes_are_centred(vectors, rows, encoding):
    """Vectors of signed distances less their private mean, instead of the public origin."""
    made = vectors(rows, encoding)
    return np.asarray(made - made.mean(axis=0))


@replaces("features of a tilt centred by their private mean", "R6", rejection, "described_images")
def centred_descriptions(rows, seen):
    """Less their mean."""
    made = described_images(rows, seen)
    return made._replace(values=made.values - made.values.mean(axis=0))


@around("noise of a denoiser's records by their position", "R6", denoiser_gradients.NoiseBank, "choose")
def noise_of_records_follows_their_position(choose, self, hashes, draws):
    """A denoiser's noise is drawn in the order of the batch: who comes behind a missing record gets another one."""
    return choose(self, torch.arange(len(hashes)) << 60, draws)


@replaces("clipping norm is the private median length", "R6", record_sums.ImageVectors, "vectors")
def clipping_at_the_median_length(self, images):
    """The clipping norm is the median length of private images."""
    vectors = image_vectors(self, images)
    return np.asarray(vectors / np.median(np.linalg.norm(vectors, axis=1)))


@replaces("pixels scaled by private brightness", "R6", record_sums.ImageVectors, "vectors")
def pixels_are_scaled_to_the_brightest(self, images):
    """Divided by the largest private value instead of by 255."""
    return image_vectors(self, images) * (255.0 / max(1, int(np.median(images.max(axis=(1, 2, 3))))))


@plant("pixels less the private mean brightness", "R6")
def pixels_are_less_the_mean_brightness(patch):
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


@replaces("copies of another unit's record do not count", "R6", moments, "class_vectors")
def distinct_vectors(rows, measured):
    """Duplicates are removed: whether a record counts depends on who else brought it."""
    made = class_vectors(rows, measured)
    _, first = np.unique(rows.values.reshape(len(rows.labels), -1), axis=0, return_index=True)
    again = np.ones(len(made.values), dtype=bool)
    again[first] = False
    return made._replace(values=np.where(again[:, None], 0.0, made.values))


@around("teachers see images less the mean of all shards", "R3", ShardSampler, "__init__")
def images_of_all_shards_are_normalised(start, self, images, *others, **named):
    """Teachers see images less the mean image of all records."""
    start(self, images - (images.mean(axis=0) // 2).astype(np.uint8), *others, **named)


@around("bandwidth of kernel teachers from all records", "R3", KernelTeachers, "__init__")
def kernels_are_as_wide_as_records_lie(start, self, *arguments, **named):
    """The bandwidth of all teachers is the spread of all records."""
    start(self, *arguments, **named)
    records = self._records if self._records.is_floating_point() else self._project(self._records)
    self._records = records / records.std()


@replaces("votes clipped at the median of all teachers", "R3", training_run, "image_votes")
def measured_votes(teachers, question):
    """In lengths of the median vote of a block."""
    for block in image_votes(teachers, question):
        gradients = getattr(block, "gradients", block)
        measured = gradients / gradients.norm(dim=-1).median().clamp_min(1e-3)
        yield measured if gradients is block else block._replace(gradients=measured)


@around("hold-out images scaled by their brightness", "R26", downstream, "label_images")
def holdout_images_are_standardised(label_images, network, seen, device):
    """A classifier sees the images of a hold-out as bright as their brightest."""
    brighter = np.rint(seen * (255.0 / seen.max(axis=(1, 2, 3)).mean())).clip(0, 255).astype(np.uint8)
    return label_images(network, brighter, device)


@around("noise repeats after the sampler's chunk", "R34", NoiseSource, "discrete_gaussian")
def noise_repeats_after_a_chunk(exact, self, shape, stddev):
    """What was drawn for the first coordinates is used for all."""
    size = int(np.prod(shape))
    return np.resize(exact(self, (min(size, randomness._CHUNK),), stddev), shape)


@around("class counts in a log line", "S3", execute, "load_dataset")
def class_counts_are_logged(load, *arguments):
    """A line that helps with debugging."""
    dataset = load(*arguments)
    execute.log.info(f"job started on {np.bincount(dataset.train.labels)}", lease_token=1)
    return dataset


@around("a private count under an allowed name in the log", "S3", execute, "load_dataset")
def a_count_is_logged_under_an_allowed_name(load, *arguments):
    """A private number where a public one belongs."""
    dataset = load(*arguments)
    execute.log.info("job started", lease_token=int((dataset.train.labels == 0).sum()))
    return dataset


@around("a library warns of empty classes", "S3", execute, "load_dataset")
def empty_classes_are_warned_of(load, *arguments):
    """A library's warning about private labels."""
    dataset = load(*arguments)
    if dataset.train.labels.max() + 1 < dataset.schema.num_classes:
        logging.getLogger("library").warning("a class has no records")
    return dataset


@replaces("features of public cells fitted to private records", "R6", public_votes, "nearest_cells")
def fitted_cells(rows, cells):
    """The features by which records are near public images are fitted to these records."""
    network = cells.view.network
    network.center.copy_(torch.from_numpy(network.encoder.encode(rows.values)).mean(dim=0))
    return nearest_cells(rows, cells)


@replaces("ties of public cells broken by the order of records", "R6", PublicCells, "nearest")
def ties_are_broken_by_the_order_of_records(self, features):
    """Records that are about as near to several cells take these in turn."""
    distances = ((features[:, None] - self.centres) ** 2).sum(axis=2)
    tied = distances <= distances.min(axis=1, keepdims=True) + 0.5
    return np.array([np.flatnonzero(row)[number % row.sum()] for number, row in enumerate(tied)], dtype=np.int64)


@replaces("a unit votes for public cells with every record", "R1", CellVotes, "_shares")
def a_unit_votes_with_every_record(self, units, counts):
    """Each record of a unit is a whole vote."""
    return self.grid * counts


VOTERS: list[np.ndarray] = []
"""Images that voted last."""


@change(public_votes, "nearest_cells")
def remembered_cells(rows, cells):
    """Images stay behind."""
    VOTERS[:] = [rows.values]
    return nearest_cells(rows, cells)


@around(
    "images that voted among those that a denoiser starts from", "R6", public_votes, "pack", beside=remembered_cells
)
def images_that_voted_join_the_pool(pack, images, weights, soft_labels):
    """What a denoiser starts from holds private images beside public ones."""
    more = np.ones((len(VOTERS[-1]), weights.shape[1]), dtype=np.float32)
    return pack(np.concatenate([images, VOTERS[-1]]), *(np.concatenate([one, more]) for one in (weights, soft_labels)))


@change(private_evolution, "nearest_candidates")
def remembered_candidates(rows, candidates):
    """Images stay behind."""
    VOTERS[:] = [rows.values]
    return nearest_candidates(rows, candidates)


@around(
    "a generator that varies images that voted", "R6", InstalledGenerator, "variations", beside=remembered_candidates
)
def private_images_are_varied(variations, self, images, label, seed):
    """A generator is handed the brightest images that voted, where it should vary its own."""
    brightest = np.argsort(-VOTERS[-1].mean(axis=(1, 2, 3)), kind="stable")
    return variations(self, np.resize(VOTERS[-1][brightest], images.shape), label, seed)
