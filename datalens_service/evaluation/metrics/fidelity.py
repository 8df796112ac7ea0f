"""How close synthetic images are to real ones, by torch-fidelity: FID, KID, precision, recall and the score.

The reference is split in two. One half trains the domain extractor and stands in as floor and ceiling: its average
image per class, and itself. The other half is what all three are compared with, so that they share one scale.
Nothing is cached on the disk: features of private images would stay there.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from datalens_service.data.dataset import Images, Split
from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation.measures import EXTRACTOR_TITLES, Basis, Measure
from datalens_service.evaluation.metrics.reference import Halves, Reference, halves
from datalens_service.evaluation.settings import ExtractorKind

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TensorImages

FEWEST_IMAGES: Final = 50
"""Below this many images on either side no figure is worth its name."""

_NOT_INSTALLED: Final = "torch-fidelity is not installed; install it with: pip install 'datalens-service[worker]'."
_KID_SUBSETS: Final = 20
_KID_SUBSET_SIZE: Final = 500
_IMAGES_PER_SCORE_SPLIT: Final = 200
_BATCHES: Final[dict[ExtractorKind, int]] = {"domain": 256, "inception": 32}

# Figure, unit, and the key under which torch-fidelity hands it out.
_FIGURES: Final = {
    "fid": ("distance", "frechet_inception_distance"),
    "kid": ("distance", "kernel_inception_distance_mean"),
    "precision": ("percent", "precision"),
    "recall": ("percent", "recall"),
    "score": ("score", "inception_score_mean"),
}


class Extractor(NamedTuple):
    """A network with its weights, as torch-fidelity looks it up."""

    kind: ExtractorKind
    registered_name: str
    weights: Path
    sha256: str

    @property
    def reads_reference(self) -> bool:
        """Whether its weights depend on the reference."""
        return self.kind == "domain"


class Comparison(NamedTuple):
    """One set of images against the reference: figures by name."""

    figures: dict[str, float]
    images: int


def fidelity(
    kind: ExtractorKind,
    synthetic: Images,
    reference: Reference,
    num_classes: int,
    *,
    most_images: int,
    folder: Path,
    inception_weights: Path | None,
    device: str,
) -> list[Measure]:
    """Compare synthetic images with real ones under one extractor.

    Args:
        kind: Which extractor.
        synthetic: uint8 (n, height, width, channels).
        reference: Real images; the measures are for those who may see figures of it.
        num_classes: Declared classes.
        most_images: Most images on either side.
        folder: Private; for the extractor's weights, which go again.
        inception_weights: The operator's file, or None.
        device: "cpu" or a CUDA device.

    Raises:
        WorkerUnavailable: Too few images, no weights, or no torch-fidelity.
    """
    parts = halves(reference, min(most_images, len(synthetic)))
    if len(parts.compared) < FEWEST_IMAGES:
        raise WorkerUnavailable(f"Fidelity needs {FEWEST_IMAGES} synthetic and {2 * FEWEST_IMAGES} reference images.")
    path = folder / "extractor.safetensors"
    try:
        extractor = _extractor(kind, parts, num_classes, path, inception_weights, device)
        count = len(parts.compared)
        sets = (synthetic[:count], _class_averages(parts.learned, count), parts.learned.images)
        found = [_compared(images, parts.compared.images, extractor, device) for images in sets]
    finally:
        path.unlink(missing_ok=True)
    return [_measure(name, found, extractor, reference) for name in _FIGURES]


def score_alone(
    synthetic: Images, reference: Reference, *, inception_weights: Path | None, device: str
) -> list[Measure]:
    """The inception score where the figures beside it could not be had: it looks at synthetic images alone.

    Args:
        synthetic: uint8 (n, height, width, channels).
        reference: Private; not read.
        inception_weights: The operator's file, or None.
        device: "cpu" or a CUDA device.

    Raises:
        WorkerUnavailable: No weights, or no torch-fidelity.
    """
    try:
        import torch_fidelity

        from datalens_service.evaluation.metrics import inception
    except ImportError as error:
        raise WorkerUnavailable(_NOT_INSTALLED) from error
    extractor = Extractor("inception", inception.NAME, *inception.weights(inception_weights))
    score = torch_fidelity.calculate_metrics(
        input1=_tensors(synthetic, extractor), isc=True, **_options(extractor, len(synthetic), device)
    )
    alone = Comparison({"score": float(score[_FIGURES["score"][1]])}, len(synthetic))
    return [_measure("score", [alone] * 3, extractor, reference)]


def _extractor(
    kind: ExtractorKind, parts: Halves, num_classes: int, path: Path, inception_weights: Path | None, device: str
) -> Extractor:
    try:
        if kind == "domain":
            from datalens_service.evaluation.metrics import domain_extractor

            digest = domain_extractor.train(parts.learned, num_classes, path, seed=0, device=device)
            return Extractor(kind, domain_extractor.NAME, path, digest)
        from datalens_service.evaluation.metrics import inception
    except ImportError as error:
        raise WorkerUnavailable(_NOT_INSTALLED) from error
    return Extractor(kind, inception.NAME, *inception.weights(inception_weights))


def _compared(images: Images, reference: Images, extractor: Extractor, device: str) -> Comparison:
    import torch_fidelity

    count = min(len(images), len(reference))
    found = torch_fidelity.calculate_metrics(
        input1=_tensors(images, extractor),
        input2=_tensors(reference, extractor),
        isc=True,
        fid=True,
        kid=True,
        prc=True,
        kid_subsets=_KID_SUBSETS,
        kid_subset_size=min(_KID_SUBSET_SIZE, count),
        **_options(extractor, count, device),
    )
    scales = {name: 100.0 if unit == "percent" else 1.0 for name, (unit, _) in _FIGURES.items()}
    return Comparison({name: scales[name] * float(found[key]) for name, (_, key) in _FIGURES.items()}, count)


def _options(extractor: Extractor, count: int, device: str) -> dict[str, object]:
    """What every comparison under an extractor is told."""
    return {
        "feature_extractor": extractor.registered_name,
        "feature_extractor_weights_path": str(extractor.weights),
        "isc_splits": max(1, min(10, count // _IMAGES_PER_SCORE_SPLIT)),
        "batch_size": _BATCHES[extractor.kind],
        "cuda": device.startswith("cuda"),
        "cache": False,
        # Also keeps the features in this process: no worker processes are started.
        "save_cpu_ram": True,
        "verbose": False,
    }


def _measure(name: str, found: list[Comparison], extractor: Extractor, reference: Reference) -> Measure:
    import torch_fidelity

    synthetic, floor, ceiling = (comparison.figures[name] for comparison in found)
    # The score under ImageNet's own classes looks at synthetic images and at nothing private.
    alone = name == "score" and not extractor.reads_reference
    compared = reference.kind == "public" or not alone
    count = found[0].images
    basis = Basis(
        extractor=extractor.registered_name,
        weights_sha256=extractor.sha256,
        library=f"torch-fidelity {torch_fidelity.__version__}",
        synthetic_images=count,
        reference="none" if alone else reference.name,
        reference_kind="public" if alone else reference.kind,
        reference_images=0 if alone else count,
    )
    return Measure(
        name=f"{name}_{extractor.kind}",
        value=_finite(synthetic),
        unit=_FIGURES[name][0],
        audience="public" if alone else reference.audience,
        status="covered" if alone else reference.status,
        protocol=_protocol(name, basis, extractor),
        floor=_finite(floor) if compared else None,
        ceiling=_finite(ceiling) if compared else None,
        basis=basis,
    )


def _protocol(name: str, basis: Basis, extractor: Extractor) -> str:
    trained = ", trained on the other half of the reference" if extractor.reads_reference else ""
    against = f" against {basis.reference_images:,} of {basis.reference}" if basis.reference_images else ""
    return (
        f"{name} of {basis.synthetic_images:,} synthetic images{against}, by {basis.library} with the "
        f"{EXTRACTOR_TITLES[extractor.kind]} ({basis.extractor}{trained}; weights SHA-256 {basis.weights_sha256[:12]}…)"
    )


def _finite(value: float) -> float:
    """Numerical noise of a matrix root can come out below 0, or as no number for equal sets."""
    return value if math.isfinite(value) else 0.0


def _class_averages(split: Split, count: int) -> Images:
    """The average image of each class that occurs, in turn."""
    averages = [split.images[split.labels == label].mean(axis=0) for label in np.unique(split.labels)]
    shown: Images = np.rint(np.stack(averages)).astype(np.uint8)
    return np.take(shown, np.arange(count) % len(shown), axis=0)


def _tensors(images: Images, extractor: Extractor) -> TensorImages[object]:
    """Images as torch-fidelity reads them: one uint8 tensor (channels, height, width) each."""
    import torch
    from torch.utils.data import Dataset

    wanted = images if extractor.kind == "domain" else _red_green_blue(images)
    stacked = torch.from_numpy(np.ascontiguousarray(wanted.transpose(0, 3, 1, 2)))

    class Stacked(Dataset[object]):
        def __len__(self) -> int:
            return len(stacked)

        def __getitem__(self, index: int) -> object:
            return stacked[index]

    return Stacked()


def _red_green_blue(images: Images) -> Images:
    """Grey values three times; an alpha channel is left out."""
    return images[..., :3] if images.shape[3] >= 3 else images[..., [0, 0, 0]]
