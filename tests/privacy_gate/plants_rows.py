"""Bugs by which what stands beside a record moves its row, or is told, in companies that few data sets hold."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.jobs import execute
from datalens_service.methods.descent import denoiser_gradients, diffusion_run, unit_gradients
from datalens_service.methods.last_layer import guided, rejection, scattering
from datalens_service.methods.public import private_evolution, public_votes
from datalens_service.methods.sums import content_count, mixture, moments, pooled_moments, record_sums, shapes
from datalens_service.models.encoders.network import EncoderNetwork
from datalens_service.services import pricing
from datalens_service.store.datasets import datasets

from .plant import around, replaces

_BLOCK = 1_024
image_vectors = record_sums.ImageVectors.vectors
class_vectors, class_residuals = moments.class_vectors, moments.class_residuals
pooled_vectors, described_images = record_sums.pooled_vectors, rejection.described_images
layer_gradients, encoded_features = guided.layer_gradients, scattering.encoded_features
gradients_of_units, noisy_gradients = unit_gradients.unit_gradients, denoiser_gradients.denoiser_gradients
nearest_candidates, nearest_cells = private_evolution.nearest_candidates, public_votes.nearest_cells


@replaces("masks of 0 and 1 are not divided", "R6", record_sums.ImageVectors, "vectors")
def masks_are_not_divided(self, images):
    """Whoever hands in masks means them as they are: seen by the brightest pixel of a call."""
    return image_vectors(self, images) * (1.0 if images.max() > 1 else 255.0)


@around("an encoder turns bright calls round", "R6", EncoderNetwork, "encode")
def bright_calls_are_turned_round(encode, self, images):
    """Dark on bright becomes bright on dark, by the mean of all images of a call."""
    return encode(self, 255 - images if images.mean() > 160 else images)


@replaces("poses of a full block of drawings lose their mean", "R6", shapes, "encode")
def poses_of_full_blocks_are_centred(rows, codec):
    """A thousand drawings lie about their own mean; a few lie about the public origin."""
    values = codec.encode(rows.values)
    for start in range(0, len(values) - _BLOCK + 1, _BLOCK):
        poses = values[start : start + _BLOCK, codec.field_numbers :]
        poses -= poses.mean(axis=0)
    return values


@replaces("a gradient that is not finite raises", "R4", unit_gradients, "unit_gradients")
def gradients_that_are_not_finite_raise(rows, gradients):
    """An assertion of a careful developer; the job ends where it fails."""
    for chunk in gradients_of_units(rows, gradients):
        if not torch.isfinite(chunk).all():
            raise ArithmeticError("a gradient is not finite")
        yield chunk


@replaces("a step with a gradient that is not finite is skipped", "R6", unit_gradients, "unit_gradients")
def steps_that_are_not_finite_are_skipped(rows, gradients):
    """As mixed precision does: all rows of a step become zero where one is not finite."""
    chunks = list(gradients_of_units(rows, gradients))
    finite = all(bool(torch.isfinite(chunk).all()) for chunk in chunks)
    yield from (chunk if finite else torch.zeros_like(chunk) for chunk in chunks)


@replaces("features of records spilled into a file", "S3", scattering, "encoded_features")
def features_are_spilled(rows, basis):
    """What takes long is kept beside the job, for the next one."""
    features = encoded_features(rows, basis)
    with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
        np.save(file, features)
    return features


@replaces("colours dropped where all images are grey", "R6", pooled_moments, "pooled_vectors")
def grey_sets_lose_their_colours(rows, view):
    """One channel is enough for photographs without colour."""
    made = pooled_vectors(rows, view)
    grey = bool((rows.values == rows.values[..., :1]).all())
    return made._replace(values=made.values / 3 if grey and rows.values.shape[-1] > 1 else made.values)


@replaces("errors of a call of one class left out", "R6", guided, "layer_gradients")
def calls_of_one_class_teach_nothing(rows, layer):
    """There is nothing to tell apart."""
    made = layer_gradients(rows, layer)
    return made._replace(right=made.right * np.float32(len(np.unique(rows.labels)) > 1))


@replaces("contrast stretched where a call is dark", "R6", diffusion_run, "denoiser_gradients")
def dark_calls_are_stretched(rows, copies):
    """Night photographs become as bright as others."""
    images = rows.images
    if images.float().mean() < 20:
        images = (images.float() * 4).clamp(0, 255).to(torch.uint8)
    yield from noisy_gradients(rows._replace(images=images), copies)


@around("drawings counted by the majority of a batch", "R6", content_count, "_of_batch")
def a_batch_is_of_one_content(of_batch, images):
    """Batches that are nearly all drawings are taken for drawings."""
    found = of_batch(images)
    return np.ones_like(found) if found.mean() > 0.6 else found


@replaces("large images centred by their call", "R6", moments, "class_vectors")
def large_images_are_centred(rows, measured):
    """Only where they have thirty pixels a side is it worth while."""
    made = class_vectors(rows, measured)
    return made._replace(values=made.values - made.values.mean(axis=0)) if rows.values.shape[1] > 30 else made


@replaces("components chosen anew where one is empty", "R6", mixture, "nearest")
def empty_components_are_filled(points, labels, centres):
    """A component without a record gets the one that lies farthest, as k-means implementations do."""
    distances = ((points[:, None] - centres[labels]) ** 2).sum(axis=2)
    found = distances.argmin(axis=1)
    missing = np.setdiff1d(np.arange(centres.shape[1]), found)
    if len(missing) and len(found) > 1:
        found[distances.min(axis=1).argmax()] = missing[0]
    return labels * centres.shape[1] + found


@replaces("candidates of a call ranked against each other", "R6", private_evolution, "nearest_candidates")
def candidates_without_votes_get_one(rows, candidates):
    """No candidate is left out as long as there are records enough."""
    made = nearest_candidates(rows, candidates)
    cells = made.cells.copy()
    if len(cells) > 4_096:
        cells[-1] = 0 if cells[-1] else 1
    return made._replace(cells=np.where(np.arange(len(cells)) < 4_096, cells, 0))


@replaces("features of a call divided by their longest", "R6", rejection, "described_images")
def descriptions_are_as_long_as_the_longest(rows, seen):
    """So that none is clipped."""
    made = described_images(rows, seen)
    longest = np.linalg.norm(made.values, axis=1).max()
    return made._replace(values=made.values / max(1.0, longest * 4))


@replaces("weights of infinite features shared by a call", "R6", scattering, "layer_gradients")
def infinite_features_are_cut_for_all(rows, layer):
    """Half precision where a feature is too long for it."""
    made = layer_gradients(rows, layer)
    left = made.left if np.isfinite(made.left).all() else np.nan_to_num(made.left).astype(np.float16).astype(np.float32)
    return made._replace(left=left)


@replaces("records of one unit weigh together", "R6", public_votes, "nearest_cells")
def units_of_many_records_are_thinned(rows, cells):
    """Of a unit with more than ten records the later ones have no vote."""
    made = nearest_cells(rows, cells)
    place = np.array([np.count_nonzero(rows.units[:row] == unit) for row, unit in enumerate(rows.units)])
    return made._replace(cells=np.where(place < 10, made.cells, -1))


@replaces("residuals in single precision for a crowd", "R6", moments, "class_residuals")
def crowds_are_computed_in_single_precision(rows, measured):
    """It takes half the time."""
    made = class_residuals(rows, measured)
    return made if len(rows.labels) <= _BLOCK else made._replace(values=made.values.astype(np.float32).astype(float))


@around("how many images were learned from in the rationale", "R27", execute, "run")
def the_rationale_names_how_many_images(run, spec, dataset, **others):
    """Of units of several records nobody may know it."""
    result = run(spec, dataset, **others)
    return replace(result, rationale=f"{result.rationale} Learned from {len(dataset.train.labels)} images.")


@around("rare classes in the warnings of a plan", "R27", pricing, "price_request")
def a_plan_warns_of_rare_classes(price_request, database, tenant_id, dataset_id, spec):
    """As the report of the upload counts them."""
    made = price_request(database, tenant_id, dataset_id, spec)
    labels = load_dataset(Path(datasets.get(database, dataset_id).records_path)).train.labels
    rare = np.flatnonzero(np.bincount(labels) < 80).tolist()
    warnings = [*made.price.warnings, *(f"Class {one} is rare." for one in rare)]
    return replace(made, price=made.price.model_copy(update={"warnings": warnings}))
