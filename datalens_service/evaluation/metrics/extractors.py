"""Feature extractors as torch-fidelity wants them: a small CNN, random convolutions, Inception and plug-ins."""

import hashlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_fidelity import FeatureExtractorBase, register_feature_extractor
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.base.plugins import EXTRACTORS, find_origin, load_plugin
from datalens_service.data.dataset import Images, Split
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.classifiers import LARGEST_SIDE, averaged

Extract = Callable[[Images], NDArray[np.floating[Any]]]

DOMAIN: Final = "datalens-domain"
RANDOM: Final = "datalens-random-convolutions"
INCEPTION: Final = "inception-v3-compat"

_FEATURES, _LOGITS = "features", "logits"
_SCALE: Final = "scale"
_STEPS, _BATCH = 120, 128
_SIDE: Final = 3
_MAPS: Final = (16, 32, 64)
_LARGEST_SIDE: Final = 64
_POOLED_FROM: Final = 8
"""Pixels on a side. On a map of one place filters of differences would see nothing."""

_GAIN: Final = 40.0
"""Scales features to about 1, as the kernel of KID expects: they measure 1.2 on MNIST, a quarter on photographs."""

# The publisher names the file by the beginning of its SHA-256.
_DIGEST_START: Final = URL_INCEPTION_V3.rsplit("-", 1)[1].removesuffix(".pth")
_TIMEOUT_SECONDS: Final = 20


class DomainExtractor(FeatureExtractorBase):  # type: ignore[misc]
    """A small CNN, trained on such images: it needs no download.

    Its features are the 64 numbers before the last layer, divided by their root mean square on the training images:
    the kernel of KID expects numbers around 1. It is of no use for other kinds of images, and its figures can be
    compared with each other only where the weights are the same.
    """

    def __init__(
        self, name: str, features_list: list[str], feature_extractor_weights_path: str, **_settings: Any
    ) -> None:
        super().__init__(name, features_list)
        with safe_open(feature_extractor_weights_path, framework="pt") as file:
            *sides, channels, classes = (int(part) for part in file.metadata()["shape"].split(","))
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        self.register_buffer("scale", weights.pop(_SCALE))
        network = small_network((*sides, channels), classes)
        network.load_state_dict(weights)
        *body, last = network.children()
        self.body, self.last = torch.nn.Sequential(*body), last

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        return _FEATURES, _LOGITS

    @staticmethod
    def get_default_feature_layer_for_metric(metric: str) -> str:
        """Choose class scores for the score, features for everything that compares."""
        return _LOGITS if metric == "isc" else _FEATURES

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs for uint8 images (n, channels, height, width)."""
        features = self.body(averaged(images.float() / 255))
        outputs = {_FEATURES: features / self.scale, _LOGITS: self.last(features)}
        return tuple(outputs[name] for name in self.features_list)


def small_network(shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """The CNN for averaged images of `shape` (height, width, channels), of any size from 4.

    It has no normalisation: it must see that images are paler or rougher than real ones, which the judge need not.
    """
    *sides, channels = shape
    # Below 16 pixels two valid convolutions would eat the image up; a border of zeros keeps its size.
    padding = 0 if min(sides) >= _POOLED_FROM * 2 else 1
    height, width = (((min(side, LARGEST_SIDE) - 2 + 2 * padding) // 2 - 2 + 2 * padding) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(32, 64, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * height * width, 64), nn.ReLU(), nn.Linear(64, num_classes),
    )  # fmt: skip


def train_small(
    images: Split, num_classes: int, *, epochs: int, batch_size: int, seed: int, device: str
) -> nn.Sequential:
    """The small CNN after some epochs of Adam 1e-3; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        pixels, targets = downstream.tensors_on(device, images.images, images.labels)
        network: nn.Sequential = small_network(tuple(pixels.shape[1:]), num_classes).to(device)
        network.to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        network.train()
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(targets)).to(device), batch_size):
                loss = nn.functional.cross_entropy(network(downstream.scaled(pixels[rows])), targets[rows])
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
    return network


def train_domain(reference: Split, num_classes: int, path: Path, *, seed: int, device: str) -> str:
    """Train the small CNN on real images and write its weights; SHA-256 of the file, hexadecimal.

    Args:
        reference: Images and labels that are not compared afterwards.
        path: The file, safetensors; as private as `reference`.
    """
    epochs = -(-_STEPS * _BATCH // len(reference.labels))
    network = train_small(reference, num_classes, epochs=epochs, batch_size=_BATCH, seed=seed, device=device)
    weights = {key: value.cpu().contiguous() for key, value in network.state_dict().items()}
    weights[_SCALE] = _root_mean_square(network, reference, device)
    shape = ",".join(map(str, (*reference.images.shape[1:], num_classes)))
    save_file(weights, path, {"shape": shape})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _root_mean_square(network: torch.nn.Module, reference: Split, device: str) -> torch.Tensor:
    """Return the root mean square of features of the training images; never 0."""
    features: torch.nn.Module = torch.nn.Sequential(*list(network.children())[:-1]).eval()
    with torch.inference_mode():
        pixels = torch.from_numpy(np.ascontiguousarray(reference.images)).to(device)
        parts = [features(downstream.scaled(part)) for part in torch.split(pixels, _BATCH)]
        return torch.cat(parts).square().mean().sqrt().clamp_min(1e-6).cpu()


class _OneOutput(FeatureExtractorBase):  # type: ignore[misc]
    """An extractor that gives features and no class scores."""

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        return (_FEATURES,)

    @staticmethod
    def get_default_feature_layer_for_metric(_metric: str) -> str:
        return _FEATURES


class RandomExtractor(_OneOutput):
    """Three layers of random convolutions.

    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models", section 3.4: where no trained
    network knows such images, one with random weights compares them better than one that was trained on others. Its 64
    features are averages over all places: they tell edges, textures and colours apart, on few images, too, but not what
    an image shows. Weights are the same for all images with as many channels, so figures can be compared from job to
    job.
    """

    def __init__(
        self, name: str, features_list: list[str], feature_extractor_weights_path: str, **_settings: Any
    ) -> None:
        super().__init__(name, features_list)
        for key, value in load_file(feature_extractor_weights_path).items():
            self.register_buffer(key, value)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return features (n, 64) of uint8 images (n, channels, height, width); sides above 64 are averaged down."""
        height, width = (min(side, _LARGEST_SIDE) for side in images.shape[2:])
        # Convolutions are twice as fast with channels last.
        maps = (images.float() / 255).contiguous(memory_format=torch.channels_last)
        maps = nn.functional.adaptive_avg_pool2d(maps, (height, width))
        for layer in range(len(_MAPS)):
            if layer and min(maps.shape[2:]) >= _POOLED_FROM:
                maps = nn.functional.avg_pool2d(maps, 2)
            padded = nn.functional.pad(maps, (_SIDE // 2,) * 4, mode="replicate")
            maps = nn.functional.conv2d(padded, getattr(self, f"layer{layer}")).relu()
        return (_GAIN * maps.mean(dim=(2, 3)),)


def write_random(channels: int, path: Path) -> str:
    """Write the weights for images with so many channels, and return the file's SHA-256 in hexadecimal."""
    # A public seed: nothing that protects anything is drawn here.
    rng = np.random.default_rng(0)
    inputs = (channels, *_MAPS)
    shapes = [(maps, inputs[layer], _SIDE, _SIDE) for layer, maps in enumerate(_MAPS)]
    filters = {f"layer{layer}": _filters(shape, rng, edges=layer > 0) for layer, shape in enumerate(shapes)}
    save_file(filters, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _filters(shape: tuple[int, ...], rng: np.random.Generator, *, edges: bool) -> Tensor:
    """Draw filters of length 1; those of later layers see differences alone, not brightness."""
    values = rng.standard_normal(shape)
    if edges:
        values -= values.mean(axis=(2, 3), keepdims=True)
    lengths = np.sqrt(np.square(values).sum(axis=(1, 2, 3), keepdims=True))
    return torch.from_numpy((values / lengths).astype(np.float32))


def inception_weights(configured: Path | None) -> tuple[Path, str]:
    """Return path and SHA-256 of the weights of ImageNet Inception: from the operator's path, or downloaded once.

    The file is a pickle of tensors. It is used only if its digest begins as the published one does and torch can read
    it without running code; torch-fidelity, which would run code, is given no other.

    Raises:
        WorkerUnavailable: There are no weights, or not the published ones.
    """
    path = configured or Path(torch.hub.get_dir(), "checkpoints", URL_INCEPTION_V3.rsplit("/", 1)[1])
    if not path.exists():
        if configured is not None:
            raise WorkerUnavailable("⟦DATALENS_INCEPTION_WEIGHTS⟧ names a file that does not exist on this worker.")
        _download(path)
    return path, _checked(path)


def _download(path: Path) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with httpx2.stream("GET", URL_INCEPTION_V3, follow_redirects=True, timeout=_TIMEOUT_SECONDS) as answer:
            answer.raise_for_status()
            with partial.open("wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
        partial.replace(path)
    except (httpx2.HTTPError, OSError) as error:
        partial.unlink(missing_ok=True)
        raise WorkerUnavailable(
            "The weights of ImageNet Inception are not on this worker and could not be downloaded. Put the file of "
            "torch-fidelity's release v0.2.0 on its disk and name it in ⟦DATALENS_INCEPTION_WEIGHTS⟧, or use the "
            "domain extractor."
        ) from error


def _checked(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(_DIGEST_START):
        raise WorkerUnavailable(
            f"The weights of ImageNet Inception on this worker are not the published ones: SHA-256 {digest[:8]}…, "
            f"not {_DIGEST_START}…."
        )
    torch.load(path, map_location="cpu", weights_only=True)
    return digest


def register_plugin(kind: str) -> tuple[str, str]:
    """Make an extractor of another package known to torch-fidelity.

    It is a function from uint8 images (n, height, width, channels) to float features (n, dimensions). It has no class
    scores, so there is no inception score under it.

    Returns:
        The name under which torch-fidelity has it, with package and version, and the SHA-256 of its module.
    """
    extract, origin = load_plugin(kind, EXTRACTORS), find_origin(kind, EXTRACTORS)
    name = f"{kind} of {origin}"

    class PluginExtractor(_OneOutput):
        def __init__(self, name: str, features_list: list[str], **_settings: Any) -> None:
            super().__init__(name, features_list)

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (extract_features(extract, kind, images),)

    register_feature_extractor(name, PluginExtractor)
    return name, hashlib.sha256(Path(inspect.getfile(extract)).read_bytes()).hexdigest()


def extract_features(extract: Extract, kind: str, images: torch.Tensor) -> torch.Tensor:
    """Extract features of images in the form of torch-fidelity.

    Raises:
        WorkerUnavailable: The plug-in breaks its contract.
    """
    pixels = np.ascontiguousarray(images.cpu().numpy().transpose(0, 2, 3, 1))
    features = np.asarray(extract(pixels))
    if features.ndim != 2 or len(features) != len(pixels) or not np.isfinite(features).all():
        raise WorkerUnavailable(f"The extractor {kind} gives no finite features (n, dimensions) for these images.")
    return torch.from_numpy(features.astype(np.float32)).to(images.device)


register_feature_extractor(RANDOM, RandomExtractor)
register_feature_extractor(DOMAIN, DomainExtractor)
