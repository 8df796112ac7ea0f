"""What images teach that a released classifier has labelled or shaped, beside those of `auto`, purpose `teach`.

    python -m benchmarks.images_from_classifier --ways matched today real inverted
    python -m benchmarks.images_from_classifier --ways drawings --images 10000

The classifier is the preset's on `imagenet-lite0`. It has all of a cell's ε, and so have images of `auto`: a job that
did both would know less. The standard CNN learns from nothing but `--images` images, and labels real test images; last
step. Each way is a line for `benchmarks/results/images_from_classifier.jsonl`:

* `today`: images of `auto`, purpose `teach`.
* `drawings`: public pictures of dead leaves, with the classifier's labels.
* `inverted`: images of `auto` to look at, moved by Adam until the classifier is sure of their class, while averages and
  deviations after every convolution stay near those of ImageNet, which batch norms keep.
* `matched`: the same with averages and deviations of 200 records of the class. They are exact, so this is **not
  private**: it bounds what a charged release of them could give.
* `real`: records.

`soft_` figures are by labels of the classifier at temperature 2; `agreeing` is the percentage of images in which it
sees their class. A step sees images at 48 to 80 pixels a side, where it costs a quarter of one at 128.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import provenance
from benchmarks.grids import sheet_of
from benchmarks.kept_results import print_result
from benchmarks.panel import CELLS, DELTA, Cell, draw, judged, trained
from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.methods.last_layer.dead_leaves import draw_dead_leaves
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.encoders.imagenet_lite0 import weights_file
from datalens_service.models.encoders.lite0_network import CENTER, SCALE, SameConvolution
from datalens_service.planning.presets import preset
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.training import run

WAYS: Final = ("today", "drawings", "inverted", "matched", "real")
_STEPS, _RATE, _SMOOTHNESS, _SHIFT = 40, 0.03, 10.0, 2
_SIDES: Final = (48, 64, 64, 80)
_MATCHED, _SEEN_SIDE = 200, 64
_COLUMNS: Final = 10

Statistics = list[tuple[Tensor, Tensor]]
"""Averages and deviations of maps, for each convolution."""


class SeeingClassifier:
    """A released classifier on features of `imagenet-lite0` that tells what its convolutions see."""

    def __init__(self, classifier: Classifier) -> None:
        network: Any = build_network(classifier.settings, classifier.schema)
        network.load_state_dict({name: torch.tensor(value) for name, value in classifier.tensors.items()})
        # The encoder's first layer enlarges; here images come at sizes of their own.
        layers = nn.Sequential(*list(network[0].encoder.layers)[1:], network[1]).requires_grad_(requires_grad=False)
        self._layers = layers.to(memory_format=torch.channels_last)
        self._seen: Statistics = []
        for layer in layers.modules():
            if isinstance(layer, SameConvolution):
                layer.register_forward_hook(lambda _layer, _input, maps: self._seen.append(_describe(maps)))

    def see(self, images: Tensor, side: int) -> tuple[Tensor, Statistics]:
        """Scores of classes, and statistics of a batch."""
        enlarged = functional.interpolate(images, (side, side), mode="bilinear", align_corners=False)
        self._seen = []
        return self._layers((enlarged - CENTER) * SCALE), self._seen

    def move(self, images: Images, labels: Labels, wanted: Statistics, seed: int) -> Images:
        """Move images until it is sure of their classes."""
        rng, classes = np.random.default_rng(seed), torch.from_numpy(labels)
        pixels = _as_pixels(images).requires_grad_()
        optimizer = torch.optim.Adam([pixels], _RATE, betas=(0.5, 0.9))
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS, _RATE / 10)
        for _ in range(_STEPS):
            shown = torch.roll(pixels, tuple(rng.integers(-_SHIFT, _SHIFT + 1, 2).tolist()), (2, 3))
            shown = shown.flip(3) if rng.random() < 1 / 2 else shown
            scores, seen = self.see(shown, int(rng.choice(_SIDES)))
            slopes = shown.diff(dim=2).abs().mean() + shown.diff(dim=3).abs().mean()
            loss = functional.cross_entropy(scores, classes) + _distance(seen, wanted) + _SMOOTHNESS * slopes
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            rate.step()
            with torch.no_grad():
                pixels.clamp_(0, 1)
        moved: Images = (pixels.detach() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        return moved


def _as_pixels(images: Images) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255


def _describe(maps: Tensor) -> tuple[Tensor, Tensor]:
    variance, average = torch.var_mean(maps, dim=(0, 2, 3))
    return average, (variance + torch.finfo(torch.float32).eps).sqrt()


def _distance(seen: Statistics, wanted: Statistics) -> Tensor:
    """Mean over maps of squared differences in deviations; maps that hardly vary count no more than others."""
    terms = []
    for (average, deviation), (right, varying) in zip(seen, wanted, strict=True):
        unit = varying.clamp_min(0.2 * float(varying.median()))
        terms.append((torch.stack([average - right, deviation - varying]) / unit).square().sum(dim=0).mean())
    return torch.stack(terms).mean()


def describe_imagenet() -> Statistics:
    """Shift and gain of batch norms: average and deviation of ImageNet's images."""
    kept = torch.load(weights_file(), map_location="cpu", weights_only=True)
    norms = [name.removesuffix("running_mean") for name in kept if name.endswith("running_mean")]
    return [(kept[norm + "bias"], kept[norm + "weight"].abs()) for norm in norms]


def release_classifier(cell: Cell, data: Dataset, seed: int) -> Classifier:
    """What a job of the preset on photographs releases."""
    method = {"name": "scattering", "encoder": "imagenet-lite0"}
    asked = {"method": method, "epsilon": cell.epsilon, "delta": DELTA, "seed": seed}
    spec = RequestedSpec.model_validate(asked).resolve(data.schema)
    released = run(spec, data, account=UnchargedAccount()).model
    if not isinstance(released, Classifier):
        raise TypeError("the method releases a classifier")
    return released


def make_images(
    way: str, classifier: Classifier, cell: Cell, data: Dataset, options: argparse.Namespace
) -> tuple[Images, Labels]:
    """Images in order of the classes that they are meant to show; drawings show none."""
    count, seed, classes = options.images, options.seed, data.schema.num_classes
    labels = np.repeat(np.arange(classes), count // classes)
    if way == "drawings":
        return draw_dead_leaves(data.schema, len(labels), np.random.default_rng(seed)), labels
    if way == "real":
        found = [np.flatnonzero(data.train.labels == label)[: count // classes] for label in range(classes)]
        return data.train.images[np.concatenate(found)], data.train.labels[np.concatenate(found)]
    method = preset("auto", data.schema, cell.epsilon, "teach" if way == "today" else "look")
    images, _ = trained(method, cell, data, seed).sample(len(labels), labels=labels, seed=seed)
    if way == "today":
        return images, labels
    seeing, wanted = SeeingClassifier(classifier), describe_imagenet()
    rows = np.arange(len(labels))
    if way == "inverted":
        for mixed in rows.reshape(-1, classes).T:
            images[mixed] = seeing.move(images[mixed], labels[mixed], wanted, seed)
        return images, labels
    for label, alike in enumerate(rows.reshape(classes, -1)):
        with torch.no_grad():
            shown = _as_pixels(data.train.images[data.train.labels == label][:_MATCHED])
            wanted = seeing.see(shown, _SEEN_SIDE)[1]
        images[alike] = seeing.move(images[alike], labels[alike], wanted, seed)
    return images, labels


def measure(way: str, classifier: Classifier, cell: Cell, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """A line."""
    began = time.process_time()
    images, labels = make_images(way, classifier, cell, data, options)
    line = {"cell": cell.name, "way": way, "images": len(images), "seed": options.seed, "judge": 2}
    if way != "drawings":
        score = judged(images, labels, data, options.seed)
        line |= {"accuracy": round(score.accuracy, 1), "balanced": round(score.balanced, 1)}
    if way in ("inverted", "matched"):
        line |= {"agreeing": round(100 * float(np.mean(classifier.predict(images).argmax(axis=1) == labels)), 1)}
    if way not in ("today", "real"):
        said = np.sqrt(classifier.predict(images))
        score = judged(images, said / said.sum(axis=1, keepdims=True), data, options.seed)
        line |= {"soft_accuracy": round(score.accuracy, 1), "soft_balanced": round(score.balanced, 1)}
    if options.grid is not None:
        options.grid.mkdir(parents=True, exist_ok=True)
        first = images.reshape(data.schema.num_classes, -1, *images.shape[1:])[:, :_COLUMNS]
        sheet_of(first, data.schema).save(options.grid / f"{way}.png", optimize=True)
    return line | {"processor_seconds": round(time.process_time() - began, 1)}


def main() -> None:
    """Release, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, required=True)
    parser.add_argument("--cell", choices=CELLS, default="cifar10-5000-5")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grid", type=Path, help="folder of pictures: ten images of each class")
    options = parser.parse_args()
    cell = CELLS[options.cell]
    data = draw(cell, options.seed)
    classifier = release_classifier(cell, data, options.seed)
    for way in options.ways:
        print_result({**provenance(), **measure(way, classifier, cell, data, options)})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
