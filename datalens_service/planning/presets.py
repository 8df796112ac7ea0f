"""Presets: settings of a method from public values only, the shape of the images, n and ε.

    auto       images that look like the private ones. Small grey ones: rejection or, where the records show objects
               and are many, diffusion. Images in colour, large ones, and those with too little evidence to train a
               classifier: fast. With the purpose `teach`, the same for many small grey ones, labelled_moments where
               they are few; others: fast, with texture. With that purpose and public images named: labelled_pool
    fast       pooled moments, or where the budget pays for it moments, or a mixture
    diffusion  images with texture: a denoiser that starts from images of rejection, or guided, and learns from records
    large      the same with a larger network, for a graphics processor
    balanced   DataLens with small dense teachers, started from moments and refined by votes
    classifier a classifier instead of images: a linear layer on features, of a public network where images are in
               colour or large and its weights are installed, else of wavelets where they fit; else a network
    paper      DataLens with the settings of its authors for MNIST; paper_fashion_mnist, paper_celeba_gender and
               paper_celeba_hair with those for other sets (docs/published-algorithm.md)
    g_pate, gs_wgan, pate_gan, dp_gan, and the same with _paper
               rivals of DataLens with our settings, or with their authors' (docs/rivals.md)

A preset is nothing but parameters: what it returns can be written out, and is, in the spec of the job.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, get_args

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import (
    ClippedRowsParameters,
    HistogramParameters,
    LabelScoresParameters,
    TopAggParameters,
)
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
    Rejection,
    RejectionOrDiffusion,
    Scattering,
)
from datalens_service.methods.descent.dp_sgd_parameters import choose_architecture
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves
from datalens_service.methods.voting.rivals import build_rival
from datalens_service.methods.voting.teachers import ConvTeacher, DenseTeacher
from datalens_service.models.classifiers.sizes import fits_scattering
from datalens_service.models.encoders.imagenet_lite0 import ImagenetLite0, takes_photographs
from datalens_service.models.encoders.scattering import RGB, ScatteringEncoder
from datalens_service.planning.published import COMMANDS, build_published
from datalens_service.privacy.accounting import default_delta, mu_for_epsilon

Purpose = Literal["look", "teach"]
"""The purpose of images of `auto`: to look like the private ones, or to teach classifiers, where few look worse."""

DEFAULT_PRESET: Final = "auto"
"""The preset of a request that names neither a method nor a preset: by REST, command line and page alike."""

# At 8×8, 1,438 digits at ε = 1 then teach 88.9 for 86.4, 2,000 clothes 66.2 for 64.8; at ε = 5 nothing is gained.
_TINY, _EVIDENCE_OF_TINY = 64, 100
_FREQUENCIES_OF_TINY, _MEANS_OF_TINY = 5 / 8, 0.7

# μ times the records of a class: 2,000 images at ε = 1 have 54, with which soft labels help on MNIST and change little
# on Fashion-MNIST; 500 have 13, with which they cost on both (docs/findings.md).
_EVIDENCE_FOR_SOFT_LABELS: Final = 50
# Records of a class: with 6,000, outlines and texture teach up to five points more than images of guided, with 1,000 of
# MNIST at ε = 10 as much. With 200 of Fashion-MNIST at ε = 10, labelled moments teach four points more than outlines.
_RECORDS_OF_OUTLINES: Final = 1000
# Share of μ² for the gradients of a classifier where pooled moments are its start.
_SHARE_OF_FEW: Final = 0.7

RECORDS_PER_TEACHER: Final = 15
"""Records of a shard in the authors' setting: 60,000 for 4,000 teachers."""

_MOST_TEACHERS: Final = 4000
_LARGEST_STEP: Final = 1024
_IMAGES_OF_A_RIVAL: Final = 100

# With classes of 6,000 records ten components are better than one at ε = 10 (μ = 2), on MNIST and on Fashion-MNIST.
# At ε = 1 (μ = 0.27) three help a little on the one and cost much on the other.
_RECORDS_PER_COMPONENT: Final = 1000
_FEWEST_COMPONENTS, _MOST_COMPONENTS = 4, 10

# μ times the records of a class from which a covariance for each class is better than one for all: with 10,000 images
# MNIST has 268 at ε = 1, where it is not, and 2,000 at ε = 10, where it is.
_EVIDENCE_FOR_COVARIANCES: Final = 1000
# Pixels of the images on which outlines and relabelled samples were seen to be better than pooled moments.
_LARGEST_OUTLINED: Final = 32 * 32

# n·μ from which a classifier learns more than samples tell: MNIST has 3,700 at ε = 0.2, where it does.
_EVIDENCE_FOR_A_LABELLER: Final = 3000


# Where a mixture pays, noise no longer ends the descent: MNIST and Fashion-MNIST at ε = 10 gain from four times as
# many steps, at ε = 1 they do not.
_LONG: Final[dict[str, Any]] = {"steps": 240, "learning_rate": 60.0, "averaging": 0.95}
# And samples of several widths teach more there than those of one.
_LEAST_SPREAD: Final = 1.25
_MIDDLE_BRIGHTNESS: Final = 0.5
# Where noise is quiet, proposals vary enough for a choice among more of them: MNIST's FID at ε = 10 falls from 18 to 11
# or 12, and as many samples teach the same.
_ACCEPTED_IN_QUIET_NOISE: Final = 0.2
# n·μ from which a denoiser learns texture before noise drowns its gradients: Fashion-MNIST has 15,500 at ε = 1, where
# it does. And the longest that its gradients may take one core without being asked for.
_EVIDENCE_FOR_A_DENOISER: Final = 15_000
_LONGEST_GRADIENT_SECONDS: Final = 3600
# On training images of CIFAR-10 that were set aside.
_DIRECTIONS_IN_COLOUR, _DRAWINGS = 1000, 4000
# Settings with which samples of guided look like those of its warm start.
_AS_RECORDS_VARY: Final = {"spread": 1.0, "least_spread": 1.0, "poses": False, "surfaces": False}


# Where a mixture pays, a step's noise is short beside its signal. On Fashion-MNIST 60 gradients give as much signal as
# 150 at ε = 1, in less time.
_FEWER_GRADIENTS: Final = 60
# There a quarter of μ² for the classifier instead of an eighth leaves FID alone, and it sees 88.2 instead of 87.3 % of
# Fashion-MNIST's training images rightly.
_SHARE_OF_START_IN_NOISE, _SHARE_OF_LABELS_IN_NOISE = 0.5, 0.5
# With the widest, the noise of a step on MNIST has a quarter of the length of the largest sum at ε = 10, and on 427,892
# weights half of it at ε = 1.
_LARGE: Final[dict[str, Any]] = {
    "width": 64, "blocks": 4, "steps": 400, "noise_draws": 4, "pretraining_steps": 10_000
}  # fmt: skip
_LARGE_IN_NOISE: Final[dict[str, Any]] = _LARGE | {"width": 32, "steps": 100}
# On CIFAR-10 at ε = 10 (docs/findings.md).
_LARGE_IN_COLOUR: Final[dict[str, Any]] = {"width": 32, "blocks": 3, "steps": 600, "noise_draws": 4}


def preset(name: str, schema: Schema, epsilon: float, purpose: Purpose = "look", *, pool: bool = False) -> AnyMethod:
    """Return parameters of a method for a data set.

    Args:
        name: Key of `PRESETS`.
        purpose: Purpose of the images of `auto`.
        pool: True if public images of the same size are at hand.

    Raises:
        InvalidSpec: There is no such preset or purpose, or the preset has only one.
    """
    if name not in PRESETS:
        raise InvalidSpec(f"There is no preset {name!r}: choose {', '.join(PRESETS)}.")
    if purpose not in get_args(Purpose):
        raise InvalidSpec(f"There is no purpose {purpose!r}: choose {', '.join(get_args(Purpose))}.")
    if name == "classifier" and pool and purpose == "look":
        return _started_classifier(schema, epsilon)
    if purpose == "look":
        return PRESETS[name](schema, epsilon)
    if name != "auto":
        raise InvalidSpec(f"The purpose {purpose!r} is one of the preset auto, not of {name}.")
    if pool and schema.num_classes > 1 and (labeller := _on_features(schema, epsilon)):
        return LabelledPool(classifier=labeller)
    return _teaching(schema, epsilon)


def plan_named(method: AnyMethod, schema: Schema, epsilon: float) -> AnyMethod:
    """Return a named method; if nothing but its name was given, with the parameters that its preset plans."""
    if isinstance(method, LabelledPool):
        return method.model_copy(update={"classifier": _plan_labeller(method, schema, epsilon)})
    planned = _PLANNED.get(type(method))
    return planned(schema, epsilon) if planned and _says_only_names(method) else method


def _plan_labeller(method: LabelledPool, schema: Schema, epsilon: float) -> AnyMethod:
    if "classifier" in method.model_fields_set:
        return plan_named(method.classifier, schema, epsilon)
    return _on_features(schema, epsilon) or method.classifier


def _says_only_names(method: AnyMethod) -> bool:
    said = method.model_fields_set - {"name"}
    if isinstance(method, Scattering) and isinstance(method.encoder, ScatteringEncoder):
        said = said - {"encoder"} | method.encoder.model_fields_set - {"name"}
    return not said


def count_teachers(schema: Schema, *, multiple_of: int = 1) -> int:
    """Count teachers with shards of about 15 records: never more than the authors had.

    Args:
        schema: Its `num_units` is public.
        multiple_of: At least this many, and a multiple of it.
    """
    count = min(_MOST_TEACHERS, schema.num_units // RECORDS_PER_TEACHER)
    return max(1, count // multiple_of) * multiple_of


def count_components(schema: Schema, epsilon: float) -> int:
    """Count the Gaussians per class that a budget pays for; 1 if a single one is better.

    The noise on a component's mean grows with 1/(μ · its records), so μ times its records decides.

    Args:
        schema: Its `num_units` is public, and counts as the number of records.
    """
    affordable = int(_evidence(schema, epsilon) / schema.num_classes / _RECORDS_PER_COMPONENT)
    return 1 if affordable < _FEWEST_COMPONENTS else min(_MOST_COMPONENTS, affordable)


def _evidence(schema: Schema, epsilon: float) -> float:
    """Return n·μ: the noise on an average over all records falls with it."""
    return schema.num_units * mu_for_epsilon(epsilon, default_delta(schema.num_units)) / schema.records_per_unit


def _fast(schema: Schema, epsilon: float) -> PooledMoments | Moments | Mixture:
    records = _evidence(schema, epsilon) / schema.num_classes
    if records < _EVIDENCE_FOR_COVARIANCES or not _is_small_and_grey(schema):
        return PooledMoments()
    return _per_class(schema, epsilon)


def _per_class(schema: Schema, epsilon: float) -> Moments | Mixture:
    components, start = count_components(schema, epsilon), build_moments(schema)
    return Mixture(components=components, center=start.center) if components > 1 else start


def _is_small_and_grey(schema: Schema) -> bool:
    return schema.dimensions <= _LARGEST_OUTLINED and schema.channels == 1


def build_moments(schema: Schema) -> Moments:
    """Plan one Gaussian per class: around a middle brightness for colour images, which are photographs as a rule."""
    return Moments(center=_MIDDLE_BRIGHTNESS) if schema.channels > 1 else Moments()


def build_baseline(schema: Schema) -> Moments:
    """Plan the moments that images are compared with; large images get 1,024 frequencies, for a tenth of the time."""
    method = build_moments(schema)
    if schema.dimensions <= _LARGEST_OUTLINED:
        return method
    return method.model_copy(update={"frequencies": _LARGEST_OUTLINED})


def _auto(
    schema: Schema, epsilon: float
) -> RejectionOrDiffusion | Rejection | Guided | PooledMoments | Moments | Mixture:
    """Choose a method for images to look at."""
    if not _pays_for_a_labeller(schema, epsilon) or not _is_small_and_grey(schema):
        return _fast(schema, epsilon)
    method = _outlines_or_pixels(schema, epsilon)
    if not isinstance(method, Rejection):
        return method
    if count_components(schema, epsilon) > 1:
        method = method.model_copy(update={"accepted": _ACCEPTED_IN_QUIET_NOISE})
    if not _pays_for_a_denoiser(schema, epsilon):
        return method
    return RejectionOrDiffusion(drawings=method, objects=_diffusion(schema, epsilon))


def _pays_for_a_denoiser(schema: Schema, epsilon: float) -> bool:
    seconds = _diffusion(schema, epsilon).gradient_seconds(schema)
    return _evidence(schema, epsilon) >= _EVIDENCE_FOR_A_DENOISER and seconds <= _LONGEST_GRADIENT_SECONDS


def explain_auto(schema: Schema, epsilon: float) -> str:
    """Say in a sentence why `auto` chooses its method."""
    if not _is_small_and_grey(schema):
        kind = "in colour" if schema.channels > 1 else f"of more than {_LARGEST_OUTLINED:,} pixels"
        return f"Images {kind} get the method pooled moments: it releases the fewest numbers, so noise hides least."
    if schema.num_classes == 1:
        return "With one class there are no labels to learn, so images are drawn from noisy averages."
    many = schema.privacy_unit.write_count(schema.num_units)
    if not _pays_for_a_labeller(schema, epsilon):
        return (
            f"{many} are too few at this ε for a private classifier that labels the synthetic images, so the whole "
            "budget goes into the images."
        )
    if not _pays_for_a_denoiser(schema, epsilon):
        return f"{many} are enough at this ε for outlines and a private classifier that labels them, not for texture."
    return f"{many} are enough at this ε for outlines, a private classifier that labels them, and texture of objects."


def _outlines_or_pixels(schema: Schema, epsilon: float) -> Rejection | Guided | Moments | Mixture:
    """Choose outlines for grey images, else pixels that vary as those of records."""
    if not _pays_for_a_labeller(schema, epsilon):
        return _per_class(schema, epsilon)
    if schema.channels == 1 and fits_scattering(schema):
        return Rejection()
    return _guided(schema, epsilon).model_copy(update=_AS_RECORDS_VARY)


def _teaching(schema: Schema, epsilon: float) -> AnyMethod:
    """Choose a method for images to learn from: those that look best teach most where records are many."""
    method = _fast(schema, epsilon)
    few = isinstance(method, PooledMoments) and schema.num_units < _RECORDS_OF_OUTLINES * schema.num_classes
    if few or not _pays_for_a_labeller(schema, epsilon) or not _is_small_and_grey(schema):
        return _teaching_moments(method, schema, epsilon) if isinstance(method, PooledMoments) else method
    return _auto(schema, epsilon)


def _teaching_moments(method: PooledMoments, schema: Schema, epsilon: float) -> LabelledMoments | PooledMoments:
    """Add the texture of all frequencies, and labels of a classifier where images are grey and wavelets fit them.

    For few tiny images not all frequencies are worth their noise.
    """
    tiny, records = schema.height * schema.width <= _TINY, _evidence(schema, epsilon) / schema.num_classes
    labelled = schema.num_classes > 1 and _is_small_and_grey(schema) and fits_scattering(schema)
    if labelled and not tiny and records >= _EVIDENCE_FOR_SOFT_LABELS:
        return LabelledMoments()
    update: dict[str, Any] = {"texture": 1.0}
    if tiny and records < _EVIDENCE_OF_TINY:
        update |= {"frequencies": math.ceil(_FREQUENCIES_OF_TINY * schema.dimensions), "means_share": _MEANS_OF_TINY}
    return method.model_copy(update=update)


def _pays_for_a_labeller(schema: Schema, epsilon: float) -> bool:
    return schema.num_classes > 1 and _evidence(schema, epsilon) >= _EVIDENCE_FOR_A_LABELLER


def _guided(schema: Schema, epsilon: float) -> Guided:
    start = _per_class(schema, epsilon)
    if not isinstance(start, Mixture):
        return Guided(warm_start=start)
    return Guided(warm_start=start, least_spread=_LEAST_SPREAD, **_LONG)


def _diffusion(schema: Schema, epsilon: float) -> Diffusion:
    start = _outlines_or_pixels(schema, epsilon)
    if count_components(schema, epsilon) > 1:
        return Diffusion(warm_start=start)
    if not isinstance(start, Rejection):
        return Diffusion(warm_start=start, steps=_FEWER_GRADIENTS)
    start = start.model_copy(update={"gradient_share": _SHARE_OF_LABELS_IN_NOISE})
    return Diffusion(warm_start=start, warm_start_share=_SHARE_OF_START_IN_NOISE, steps=_FEWER_GRADIENTS)


def _large(schema: Schema, epsilon: float) -> Diffusion:
    start, quiet = _outlines_or_pixels(schema, epsilon), count_components(schema, epsilon) > 1
    if quiet and isinstance(start, Guided) and fits_scattering(schema):
        return Diffusion(warm_start=LabelledMoments(), **_LARGE_IN_COLOUR)
    return Diffusion(warm_start=start, **_LARGE if quiet else _LARGE_IN_NOISE)


def _balanced(schema: Schema, _epsilon: float) -> DataLens:
    shards = _class_pure(schema) | {
        "images_per_step": schema.num_classes * max(1, min(2, _LARGEST_STEP // schema.num_classes))
    }
    return DataLens(
        **shards,
        vote_basis="dct",
        votes=TopAggParameters(top_k=min(16, schema.dimensions)),
        clip=1.0,
        threshold="none",
        warm_start=build_moments(schema),
    )


def _classifier(schema: Schema, epsilon: float) -> Scattering | DpSgd:
    return _on_features(schema, epsilon) or _started_classifier(schema, epsilon)


def _started_classifier(schema: Schema, epsilon: float) -> Scattering | DpSgd:
    """Choose a classifier that public images can start."""
    return _on_wavelets(schema, epsilon) if fits_scattering(schema) else DpSgd()


def _on_features(schema: Schema, epsilon: float) -> Scattering | None:
    """Choose features of photographs or of wavelets; None if neither fits.

    With 10,000 records of CIFAR-10 at ε = 1 features of photographs give more than wavelets with five times as many
    at ε = 3; for digits wavelets are better.
    """
    if not _is_small_and_grey(schema) and takes_photographs(schema):
        return Scattering(encoder=ImagenetLite0())
    return _on_wavelets(schema, epsilon) if fits_scattering(schema) else None


def _on_wavelets(schema: Schema, epsilon: float) -> Scattering:
    """Choose drawings over samples for features of photographs: they show better how these vary, and cost nothing."""
    if schema.channels == 1:
        few = _evidence(schema, epsilon) / schema.num_classes < _EVIDENCE_FOR_COVARIANCES
        return Scattering(warm_start=PooledMoments(), gradient_share=_SHARE_OF_FEW) if few else Scattering()
    colours: Literal["separate", "opponent"] = "opponent" if schema.channels == RGB else "separate"
    return Scattering(
        encoder=ScatteringEncoder(colours=colours),
        warm_start=DeadLeaves(),
        dimensions=_DIRECTIONS_IN_COLOUR,
        samples=_DRAWINGS,
    )


def _class_pure(schema: Schema) -> dict[str, Any]:
    """Plan shards of one class and a batch of all classes, where there is a record for each; small images entirely.

    A class of its own for every teacher needs at least one record for each.
    """
    apart = schema.num_units >= schema.num_classes
    classes = schema.num_classes if apart else 1
    return {
        "shards": "class_pure" if apart else "mixed",
        "num_teachers": count_teachers(schema, multiple_of=classes),
        "images_per_step": classes * max(1, min(_IMAGES_OF_A_RIVAL, _LARGEST_STEP) // classes),
        "vote_dimensions": min(64, schema.dimensions),
    }


def _g_pate(schema: Schema, _epsilon: float) -> DataLens:
    votes = HistogramParameters(projections=min(64, schema.dimensions), bins=4)
    return build_rival("g_pate", votes=votes, **_class_pure(schema))


def _g_pate_paper(schema: Schema, epsilon: float) -> DataLens:
    small = epsilon <= 1
    return DataLens(
        num_teachers=min(count_teachers(schema), 4000 if small else 2000),
        teacher=ConvTeacher(batch=64),
        shards="mixed",
        images_per_step=64,
        votes=HistogramParameters(projections=min(10, schema.dimensions), bins=10, weight=1, reading="argmax"),
        clip=1e-4,
        stochastic=False,
        threshold=0.5,
        vote_basis="pixels",
        noise_stddev=1000 if small else 100,
        steps=None,
        z_dim=50 if small else 100,
        student="deconv",
        image_step_size=1.0,
        student_learning_rate=1e-3,
        student_averaging=0.0,
    )


def _gs_wgan(schema: Schema, _epsilon: float) -> DataLens:
    return build_rival("gs_wgan", **_class_pure(schema))


def _pate_gan(schema: Schema, _epsilon: float) -> PateGan:
    return PateGan(**_class_pure(schema))


def _pate_gan_paper(schema: Schema, _epsilon: float) -> PateGan:
    return PateGan(
        num_teachers=min(1000, count_teachers(schema)),
        teacher=DenseTeacher(batch=64, steps=5),
        shards="mixed",
        images_per_step=320,
        votes=LabelScoresParameters(scores="bit"),
        steps=1000,
        remembered_steps=1,
        warm_start=None,
    )


def _dp_gan_paper(schema: Schema, epsilon: float) -> DpGan:
    # Bie, Kamath and Zhang (2023) make 450,000 steps on Poisson batches of 128; full passes take less noise.
    return DpGan(
        discriminator=choose_architecture(schema),
        steps=3_000,
        discriminator_learning_rate=2e-4,
        updates_per_generator_step=200 if epsilon <= 1 else 50,
        images_per_step=128,
        generator="deconv",
        z_dim=128,
        generator_learning_rate=2e-4,
        generator_averaging=0.0,
        warm_start=None,
    )


def _gs_wgan_paper(schema: Schema, _epsilon: float) -> DataLens:
    # The authors train 10,000 steps before the first round; a teacher may have 1,000. They clip the gradient of an
    # image's own loss to length 1, which is a share of the mean over the images.
    return DataLens(
        num_teachers=min(1000, max(1, schema.num_units // 60)),
        teacher=ConvTeacher(batch=32, steps=5, warmup_steps=1000, learning_rate=1e-4),
        shards="mixed",
        images_per_step=32,
        votes=ClippedRowsParameters(),
        clip=1 / 32,
        stochastic=False,
        threshold="none",
        image_step_size=4.0,
        vote_basis="pixels",
        steps=20_000,
        z_dim=10,
        student="deconv",
        student_learning_rate=1e-4,
        student_averaging=0.999,
    )


PRESETS: Final[dict[str, Callable[[Schema, float], AnyMethod]]] = {
    "auto": _auto,
    "fast": _fast,
    "diffusion": _diffusion,
    "large": _large,
    "balanced": _balanced,
    **{name: partial(build_published, name) for name in COMMANDS},
    "classifier": _classifier,
    "g_pate": _g_pate,
    "g_pate_paper": _g_pate_paper,
    "gs_wgan": _gs_wgan,
    "gs_wgan_paper": _gs_wgan_paper,
    "dp_gan": lambda _schema, _epsilon: DpGan(),
    "dp_gan_paper": _dp_gan_paper,
    "pate_gan": _pate_gan,
    "pate_gan_paper": _pate_gan_paper,
}
_PLANNED: Final[dict[type[AnyMethod], Callable[[Schema, float], AnyMethod]]] = {
    Diffusion: _diffusion, Guided: _guided, PateGan: _pate_gan, Scattering: _on_wavelets,
}  # fmt: skip
"""Methods whose defaults are those of one data set."""
