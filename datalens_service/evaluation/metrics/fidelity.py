"""Fidelity of synthetic images to real ones, by torch-fidelity: FID, KID, precision, recall and the score.

The reference is split in two. One half trains the domain extractor and stands in as baseline, by its average image per
class, and as other real images. The other half is what all three are compared with, so that they share one scale.
Nothing is cached on the disk: features of private images would stay there.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Images, Split
from datalens_service.evaluation.metrics.classifier_benchmark import STEPS_OF_A_TRAINING
from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.metric import Better, Metric
from datalens_service.evaluation.metrics.outcome import Basis, MetricResult, PublicFacts, Reads
from datalens_service.evaluation.metrics.reference import Halves, Reference, halves
from datalens_service.evaluation.metrics.reference_checks import spoil, why_unknown
from datalens_service.evaluation.settings import PLUGINS, ExtractorKind

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TensorImages

FEWEST_IMAGES: Final = 50
"""Below this many images on either side no figure is worth its name."""

_NOT_INSTALLED: Final = "torch-fidelity is not installed; install it with: pip install 'datalens-service[worker]'."
_KID_SUBSETS: Final = 20
_KID_SUBSET_SIZE: Final = 500
_IMAGES_PER_SCORE_SPLIT: Final = 200
_BATCH: Final = 64
_BATCH_OF_INCEPTION: Final = 32
_IMAGES_AT_ONCE: Final = 1_000
"""Images that are compared with all others at once."""

EXTRACTOR_TITLES: Final[dict[ExtractorKind, str]] = {
    "domain": "domain extractor",
    "random": "random convolutions",
    "inception": "ImageNet Inception",
    **{kind: f"extractor {kind}" for kind in PLUGINS},
}
_WITHOUT_CLASS_SCORES: Final = ("random", *PLUGINS)
_CHECKED: Final = ("domain", "random")
"""Comparisons under Inception are too slow for checks, and plug-ins answer for themselves."""


class _Figure(NamedTuple):
    """The name and settings of a figure of torch-fidelity, without an extractor."""

    title: str
    meaning: str
    unit: str
    better: Better
    key: str


_SCORE: Final = "score"
_FIGURES: Final = {
    "fid": _Figure(
        "FID",
        "Distance of the features of synthetic and real images, as two Gaussians. Lower is closer.",
        "distance",
        "lower",
        "frechet_inception_distance",
    ),
    "kid": _Figure(
        "KID",
        "The same question without the Gaussians, by a kernel; 0 on average for equal sets.",
        "distance",
        "lower",
        "kernel_inception_distance_mean",
    ),
    "precision": _Figure(
        "Precision",
        "Share of synthetic images that lie where real ones do. With a recall near 0 it says little: one typical "
        "image, repeated, has it too.",
        "percent",
        "higher",
        "precision",
    ),
    "recall": _Figure(
        "Recall",
        "Share of real images that lie where synthetic ones do: how much of their variety is there, however precise.",
        "percent",
        "higher",
        "recall",
    ),
    _SCORE: _Figure(
        "Inception score",
        "How sure the extractor is of each image and how evenly the classes occur. It does not see sameness within "
        "a class.",
        "score",
        "higher",
        "inception_score_mean",
    ),
}


class Extractor(NamedTuple):
    """A network with its weights, as torch-fidelity looks it up."""

    kind: ExtractorKind
    registered_name: str
    weights: Path
    sha256: str

    @property
    def reads_reference(self) -> bool:
        """Tell whether its weights depend on the reference."""
        return self.kind == "domain"


class ReferenceComparison(NamedTuple):
    """The figures, by name, of one set of images against the reference."""

    figures: dict[str, float]
    images: int


class Comparisons(NamedTuple):
    """Three sets under one extractor, on one scale; `baseline` is the average real image of each class."""

    extractor: Extractor
    synthetic: ReferenceComparison
    baseline: ReferenceComparison
    real: ReferenceComparison


def compare(
    kind: ExtractorKind,
    synthetic: Images,
    reference: Reference,
    num_classes: int,
    *,
    most_images: int,
    folder: Path,
    inception_weights: Path | None,
    device: str,
) -> Comparisons:
    """Compare synthetic images with real ones under one extractor.

    Args:
        synthetic: uint8 (n, height, width, channels).
        reference: Real images; results are for those who may see figures of it.
        most_images: Most images on either side.
        folder: Private; for the extractor's weights, which are deleted afterwards.

    Raises:
        WorkerUnavailable: There are too few images, no weights or no torch-fidelity, or the extractor fails its checks.
    """
    parts = halves(reference, min(most_images, len(synthetic)))
    if len(parts.compared.labels) < FEWEST_IMAGES:
        raise WorkerUnavailable(f"Fidelity needs {FEWEST_IMAGES} synthetic and {2 * FEWEST_IMAGES} reference images.")
    path = folder / "extractor.safetensors"
    try:
        extractor = _extractor(kind, parts, num_classes, path, inception_weights, device)
        real = _FeaturesOf(extractor, parts.compared.images, device)
        count = len(parts.compared.labels)
        sets = (synthetic[:count], _class_averages(parts.learned, count), parts.learned.images)
        compared = [real.compare(images) for images in sets]
        _check(real, compared[-1], parts)
        return Comparisons(extractor, *compared)
    finally:
        path.unlink(missing_ok=True)


def score_alone(
    synthetic: Images, *, inception_weights: Path | None, device: str
) -> tuple[Extractor, ReferenceComparison]:
    """Compute the inception score under ImageNet's own classes, which looks at synthetic images alone.

    Raises:
        WorkerUnavailable: There are no weights, or no torch-fidelity.
    """
    try:
        import torch_fidelity

        from datalens_service.evaluation.metrics import extractors
    except ImportError as error:
        raise WorkerUnavailable(_NOT_INSTALLED) from error
    extractor = Extractor("inception", extractors.INCEPTION, *extractors.inception_weights(inception_weights))
    score = torch_fidelity.calculate_metrics(
        input1=_tensors(synthetic, extractor), isc=True, **_options(extractor, len(synthetic), device)
    )
    return extractor, ReferenceComparison({_SCORE: float(score[_FIGURES[_SCORE].key])}, len(synthetic))


def _compute(context: Context, name: str, kind: ExtractorKind) -> MetricResult:
    comparisons = context.once(("fidelity", kind), lambda: _all_sets(context, kind))
    return against(name, comparisons, context.reference)


def _all_sets(context: Context, kind: ExtractorKind) -> Comparisons:
    synthetic, _ = context.generator.sample(context.settings.fidelity_images)
    return compare(
        kind,
        synthetic,
        context.reference,
        context.schema.num_classes,
        most_images=context.settings.fidelity_images,
        folder=context.folder,
        inception_weights=context.inception_weights,
        device=context.device,
    )


def _compute_score(context: Context) -> MetricResult:
    """Compute the score for anybody: its value, number of images and presence must not depend on private images."""
    if context.reference_is_public:
        return _compute(context, _SCORE, "inception")
    synthetic, _ = context.generator.sample(context.settings.fidelity_images)
    return without_reference(
        *score_alone(synthetic, inception_weights=context.inception_weights, device=context.device)
    )


def against(name: str, comparisons: Comparisons, reference: Reference) -> MetricResult:
    """One figure of synthetic images, beside what it is for the baseline and for other real images."""
    alone = name == _SCORE and not comparisons.extractor.reads_reference
    basis = _basis(comparisons.extractor, comparisons.synthetic.images, None if alone else reference)
    return MetricResult(
        values=(_finite(comparisons.synthetic.figures[name]),),
        protocol=_protocol(name, basis, comparisons.extractor),
        baseline=_finite(comparisons.baseline.figures[name]),
        of_real_images=_finite(comparisons.real.figures[name]),
        basis=basis,
    )


def without_reference(extractor: Extractor, score: ReferenceComparison) -> MetricResult:
    """Return the inception score of synthetic images, with nothing to compare it with."""
    basis = _basis(extractor, score.images, None)
    return MetricResult((_finite(score.figures[_SCORE]),), _protocol(_SCORE, basis, extractor), basis=basis)


def _extractor(
    kind: ExtractorKind, parts: Halves, num_classes: int, path: Path, inception_weights: Path | None, device: str
) -> Extractor:
    try:
        from datalens_service.evaluation.metrics import extractors
    except ImportError as error:
        raise WorkerUnavailable(_NOT_INSTALLED) from error
    if kind == "domain":
        digest = extractors.train_domain(parts.learned, num_classes, path, seed=0, device=device)
        return Extractor(kind, extractors.DOMAIN, path, digest)
    if kind == "random":
        digest = extractors.write_random(int(parts.compared.images.shape[3]), path)
        return Extractor(kind, extractors.RANDOM, path, digest)
    if kind in PLUGINS:
        name, digest = extractors.register_plugin(kind)
        return Extractor(kind, name, path, digest)
    return Extractor(kind, extractors.INCEPTION, *extractors.inception_weights(inception_weights))


class _FeaturesOf:
    """Features of the real images that sets are compared with, computed once."""

    def __init__(self, extractor: Extractor, images: Images, device: str) -> None:
        from torch_fidelity.utils import create_feature_extractor, resolve_feature_layer_for_metric

        self.extractor, self._count = extractor, len(images)
        self._options = _options(extractor, len(images), device)
        names = ("fid", "kid", "prc", *(() if extractor.kind in _WITHOUT_CLASS_SCORES else ("isc",)))
        self._layers = {name: resolve_feature_layer_for_metric(name, **self._options) for name in names}
        layers = sorted(set(self._layers.values()))
        self._network = create_feature_extractor(extractor.registered_name, layers, **self._options)
        self._real = self._extract(images)
        self._real_statistics = self._summarize(self._real)

    def compare(self, images: Images) -> ReferenceComparison:
        """Compute all figures of as many images against the real ones."""
        from torch_fidelity import metric_isc, metric_kid, metric_prc

        features, layers, options = self._extract(images), self._layers, self._options
        computed = {
            **self._distance(features),
            **metric_kid.kid_featuresdict_to_metric(features, self._real, layers["kid"], **options),
            **metric_prc.prc_featuresdict_to_metric(features, self._real, layers["prc"], **options),
        }
        if "isc" in layers:
            computed |= metric_isc.isc_featuresdict_to_metric(features, layers["isc"], **options)
        scales = {name: 100.0 if figure.unit == "percent" else 1.0 for name, figure in _FIGURES.items()}
        names = _names(self.extractor.kind)
        figures = {name: scales[name] * float(computed[_FIGURES[name].key]) for name in names}
        return ReferenceComparison(figures, self._count)

    def distance(self, images: Images) -> float:
        """Compute the FID alone."""
        return _finite(self._distance(self._extract(images))[_FIGURES["fid"].key])

    def _distance(self, features: dict[str, Any]) -> dict[str, float]:
        from torch_fidelity import metric_fid

        found: dict[str, float] = metric_fid.fid_statistics_to_metric(
            self._summarize(features), self._real_statistics, verbose=False
        )
        return found

    def _summarize(self, features: dict[str, Any]) -> Any:
        """Compute mean and covariance."""
        from torch_fidelity import metric_fid

        return metric_fid.fid_featuresdict_to_statistics(features, self._layers["fid"])

    def _extract(self, images: Images) -> dict[str, Any]:
        """Compute features by layer."""
        from torch_fidelity.utils import extract_featuresdict_from_input_id

        extracted: dict[str, Any] = extract_featuresdict_from_input_id(
            1, self._network, input1=_tensors(images, self.extractor), **self._options
        )
        return extracted


def _check(real: _FeaturesOf, comparison: ReferenceComparison, parts: Halves) -> None:
    """Refuse figures of an extractor that does not see what people see on this reference.

    Args:
        real: The images that others are compared with.
        comparison: The comparison of other real images.

    Raises:
        WorkerUnavailable: One sentence says why.
    """
    if real.extractor.kind not in _CHECKED:
        return
    distances = {name: real.distance(images) for name, images in spoil(parts.learned.images)}
    if reason := why_unknown(comparison.figures["fid"], distances):
        raise WorkerUnavailable(reason)


def _options(extractor: Extractor, count: int, device: str) -> dict[str, Any]:
    """Return the options of torch-fidelity for an extractor and sets of `count` images."""
    return {
        "feature_extractor": extractor.registered_name,
        "feature_extractor_weights_path": str(extractor.weights),
        "isc_splits": max(1, min(10, count // _IMAGES_PER_SCORE_SPLIT)),
        "kid_subsets": _KID_SUBSETS,
        "kid_subset_size": min(_KID_SUBSET_SIZE, count),
        "prc_batch_size": _IMAGES_AT_ONCE,
        "batch_size": _BATCH_OF_INCEPTION if extractor.kind == "inception" else _BATCH,
        "cuda": device.startswith("cuda"),
        "cache": False,
        # Also keeps the features in this process: no worker processes are started.
        "save_cpu_ram": True,
        "verbose": False,
    }


def _basis(extractor: Extractor, count: int, reference: Reference | None) -> Basis:
    import torch_fidelity

    return Basis(
        extractor=extractor.registered_name,
        weights_sha256=extractor.sha256,
        library=f"torch-fidelity {torch_fidelity.__version__}",
        synthetic_images=count,
        reference="none" if reference is None else reference.name,
        reference_kind="public" if reference is None else reference.kind,
        reference_images=0 if reference is None else count,
    )


def _protocol(name: str, basis: Basis, extractor: Extractor) -> str:
    trained = ", trained on the other half of the reference" if extractor.reads_reference else ""
    compared = basis.reference_images and name != _SCORE
    against = f" against {basis.reference_images:,} of {basis.reference}" if compared else ""
    return (
        f"{name} of {basis.synthetic_images:,} drawn images{against}, by {basis.library} with the "
        f"{EXTRACTOR_TITLES[extractor.kind]} ({basis.extractor}{trained}; weights SHA-256 {basis.weights_sha256[:12]}…)"
    )


def _finite(value: float) -> float:
    """Replace by 0 what numerical noise of a matrix root makes of equal sets: no number."""
    return value if math.isfinite(value) else 0.0


def _class_averages(split: Split, count: int) -> Images:
    """Return the average image of each class that occurs, in turn."""
    averages = [split.images[split.labels == label].mean(axis=0) for label in np.unique(split.labels)]
    shown: Images = np.rint(np.stack(averages)).astype(np.uint8)
    return np.take(shown, np.arange(count) % len(shown), axis=0)


def _tensors(images: Images, extractor: Extractor) -> TensorImages[object]:
    """Wrap images as torch-fidelity reads them: one uint8 tensor (channels, height, width) each."""
    import torch
    from torch.utils.data import Dataset

    pixels = images if extractor.kind != "inception" else _red_green_blue(images)
    stacked = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))

    class Stacked(Dataset[object]):
        def __len__(self) -> int:
            return len(stacked)

        def __getitem__(self, index: int) -> object:
            return stacked[index]

    return Stacked()


def _red_green_blue(images: Images) -> Images:
    """Repeat grey values three times, and leave out an alpha channel."""
    return images[..., :3] if images.shape[3] >= 3 else images[..., [0, 0, 0]]


def _names(kind: ExtractorKind) -> tuple[str, ...]:
    """List the figures under an extractor: some have no class scores."""
    return tuple(name for name in _FIGURES if name != _SCORE or kind not in _WITHOUT_CLASS_SCORES)


def _reads(kind: ExtractorKind, *, alone: bool) -> Reads:
    """Keep a figure for the owner alone if strangers lack the package to compute it."""
    if kind in PLUGINS:
        return "training"
    return "released" if alone else "reference"


def _metric(name: str, kind: ExtractorKind) -> Metric:
    figure, alone = _FIGURES[name], name == _SCORE and kind == "inception"
    return Metric(
        name=f"{name}_{kind}",
        title=f"{figure.title}, {EXTRACTOR_TITLES[kind]}",
        meaning=f"{figure.meaning} {_compares(kind)}" if figure.unit == "distance" else figure.meaning,
        unit=figure.unit,
        better=figure.better,
        reads=_reads(kind, alone=alone),
        compute=_compute_score if alone else partial(_compute, name=name, kind=kind),
        applies=partial(_applies, kind),
        steps=partial(_steps, name, kind),
        group=f"Fidelity, {EXTRACTOR_TITLES[kind]}",
        family=name,
        variant=kind,
    )


def _compares(kind: ExtractorKind) -> str:
    """Tell whether distances under an extractor compare with those of papers."""
    if kind == "inception":
        return "Papers use this extractor, most with 50,000 images: fewer give larger figures."
    return "Papers use another extractor: do not compare with theirs."


def _applies(kind: ExtractorKind, facts: PublicFacts) -> bool:
    return facts.has_reference and kind in facts.settings.fidelity


_WORTH: Final = {"domain": 20_000, "random": 10_000}
"""Images on which the standard CNN is trained in the time that all figures of an extractor take."""
_WORTH_OF_OTHERS: Final = 200_000


def _steps(name: str, kind: ExtractorKind, facts: PublicFacts) -> int:
    """Return the steps of all figures of an extractor, by trainings of the standard CNN: the first computes all."""
    if name != next(iter(_FIGURES)):
        return 0
    trained = facts.settings.steps * facts.settings.batch_size
    return max(1, round(STEPS_OF_A_TRAINING * _WORTH.get(kind, _WORTH_OF_OTHERS) / trained))


# Two extractors are two scales: no metric is shared between them, so that no table can mix them.
METRICS: Final = tuple(_metric(name, kind) for kind in EXTRACTOR_TITLES for name in _names(kind))
