"""Images of a folder by the protocol of DPImageBench, with its three classifiers: figures that others can place.

    python -m benchmarks.dpimagebench EuroSAT_RGB --epsilon 10 --device cuda
    python -m benchmarks.dpimagebench camelyon17_32 --epsilon 1
    python -m benchmarks.dpimagebench FOLDER --attribute Male          # CelebA: FOLDER/celeba, as torchvision keeps it
    python -m benchmarks.dpimagebench FOLDER --side 8 --images 600 --epochs 5       # a small trial

A folder has class folders (EuroSAT, whose test images are 4,000 of 27,000 by the protocol's draw), or class folders in
`train` and `test` (Camelyon). Images are cropped to a square and brought to 32×32. The job is that of a preset, at
δ = 1/(n ln n). Of 60,000 released images eleven twelfths train a ResNet-110, a WideResNet-40-4 and a ResNeXt-29 of
8×64 (50 epochs of Adam at 0.01, a fifth of it from the 20th and again from the 40th, batches of 256, averaged weights);
the rest choose the epoch, so that no private image does. CIFAR has settings of its own there, which are not here.
`best` is what DPImageBench's tables show, `mean` the mean over the three.
DPImageBench is by Gong, Li, Lin and Wang 2025 (arXiv:2503.14681).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torchvision import datasets, transforms
from torchvision.models.resnet import BasicBlock, Bottleneck

from benchmarks.environment import PARTITION_KEY, provenance
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Images, Labels, Schema, Split
from datalens_service.planning.presets import preset
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

_TEST_SHARE: Final = 4_000 / 27_000
_CHOOSING: Final = 12
"""One of so many released images chooses the epoch."""
_BATCH, _RATE, _DECAY, _EVERY = 256, 0.01, 0.2, 20
_AVERAGING: Final = 0.9999


class WideBlock(nn.Module):
    """Two convolutions behind their normalisations, with dropout between them (Zagoruyko and Komodakis 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.start = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.Dropout(0.3),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )  # fmt: skip
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        started = self.start(images)
        return self.body(started) + (images if self.shortcut is None else self.shortcut(started))


def _residual(block: type[BasicBlock | Bottleneck], inputs: int, outputs: int, stride: int) -> nn.Module:
    """A block of torchvision with a shortcut where sizes differ; a bottleneck has eight groups."""
    shortcut = None
    if stride > 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return block(inputs, outputs // block.expansion, stride, shortcut, groups=8 if block is Bottleneck else 1)


NETWORKS: Final[dict[str, tuple[Sequence[int], int, Callable[[int, int, int], nn.Module]]]] = {
    "resnet": ((16, 16, 32, 64), 18, functools.partial(_residual, BasicBlock)),
    "wide_resnet": ((16, 64, 128, 256), 6, WideBlock),
    "resnext": ((64, 256, 512, 1024), 3, functools.partial(_residual, Bottleneck)),
}
"""Width of the first convolution and of three stages, blocks of each stage, and which."""


def build(name: str, channels: int, classes: int) -> nn.Module:
    """One of the three, untrained."""
    widths, count, block = NETWORKS[name]
    layers: list[nn.Module] = []
    for stage, (before, width) in enumerate(itertools.pairwise(widths)):
        layers += [block(before, width, 2 if stage else 1), *(block(width, width, 1) for _ in range(count - 1))]
    # Blocks that normalise at their start leave it to the end of the network to do so once more.
    at, width = (len(layers), widths[-1]) if block is WideBlock else (0, widths[0])
    layers[at:at] = [nn.BatchNorm2d(width), nn.ReLU()]
    first = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
    network = nn.Sequential(first, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    return network


def read(folder: Path, side: int, attribute: str | None) -> tuple[Dataset, Split]:
    """Training and test images of a folder, as its owners distribute it."""
    crop = transforms.Lambda(lambda image: transforms.functional.center_crop(image, min(image.size)))
    sized = transforms.Resize((side, side), transforms.InterpolationMode.LANCZOS)
    view = transforms.Compose([crop, sized, transforms.Lambda(np.asarray)])
    if attribute is not None:
        faces = [datasets.CelebA(str(folder), split=split, transform=view) for split in ("train", "test")]
        place, names = faces[0].attr_names.index(attribute), (f"not {attribute}", attribute)
        train, test = (_split((image, int(facts[place])) for image, facts in part) for part in faces)
    elif (folder / "train").is_dir():
        parts = [datasets.ImageFolder(str(folder / name), view) for name in ("train", "test")]
        (train, test), names = map(_split, parts), tuple(parts[0].classes)
    else:
        whole = datasets.ImageFolder(str(folder), view)
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0)).tolist()
        count, names = len(order) - round(_TEST_SHARE * len(order)), tuple(whole.classes)
        train, test = (_split(whole[row] for row in rows) for rows in (order[:count], order[count:]))
    height, width, channels = train.images.shape[1:]
    schema = Schema(height=height, width=width, channels=channels, class_names=names, num_units=len(train.labels))
    return Dataset(schema, train, test, PARTITION_KEY), test


def _split(pairs: Iterable[tuple[Images, int]]) -> Split:
    images, labels = zip(*pairs, strict=True)
    return Split(np.stack(images), np.array(labels, dtype=np.int64))


def judge(network: nn.Module, released: Split, test: Split, epochs: int, device: str) -> float:
    """Percent of test images that are labelled rightly at the epoch that a twelfth of the released images chooses."""
    order = torch.randperm(len(released.labels), generator=torch.Generator().manual_seed(0)).numpy()
    chosen, learned = np.split(order, [len(order) // _CHOOSING])
    network = network.to(device)
    averaged = AveragedModel(network, multi_avg_fn=_average)
    optimizer = torch.optim.Adam(network.parameters(), _RATE)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, _EVERY, _DECAY)
    best = (-1.0, 0.0)
    for _ in range(epochs):
        network.train()
        for rows in torch.split(torch.from_numpy(learned)[torch.randperm(len(learned))], _BATCH):
            wanted = torch.from_numpy(released.labels[rows]).to(device)
            loss = nn.functional.cross_entropy(network(_scaled(released.images[rows], device)), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(network)
        rate.step()
        reached = _accuracy(averaged, released.images[chosen], released.labels[chosen], device)
        if reached >= best[0]:
            best = (reached, _accuracy(averaged, test.images, test.labels, device))
    return best[1]


@torch.no_grad()
def _average(averages: Any, current: Any, updates: Any) -> None:
    """A moving average that forgets faster at the start."""
    kept = min(_AVERAGING, (1 + float(updates)) / (10 + float(updates)))
    torch._foreach_lerp_(averages, current, 1 - kept)


@torch.no_grad()
def _accuracy(network: nn.Module, images: Images, labels: Labels, device: str) -> float:
    network.eval()
    parts = np.split(images, range(_BATCH, len(images), _BATCH))
    found = [network(_scaled(part, device)).argmax(1).cpu().numpy() for part in parts]
    return 100 * float(np.mean(np.concatenate(found) == labels))


def _scaled(images: Images, device: str) -> Tensor:
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1


def main() -> None:
    """Read, train, release, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attribute", help="of CelebA, that makes two classes")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--purpose", choices=("look", "teach"), default="teach")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    data, test = read(options.folder, options.side, options.attribute)
    schema, units = data.schema, data.schema.num_units
    method, delta = preset("auto", schema, options.epsilon, options.purpose), 1 / (units * math.log(units))
    spec = TrainingSpec(method=method, epsilon=options.epsilon, delta=delta, seed=0)
    generator = run(spec, data, account=UnchargedAccount()).generator
    released = Split(*generator.sample(options.images, seed=0))
    torch.manual_seed(0)
    found = {}
    for name in NETWORKS:
        network = build(name, schema.channels, schema.num_classes)
        found[name] = round(judge(network, released, test, options.epochs, options.device), 1)
    line = {"set": options.folder.name, "records": units, "side": options.side, "epsilon": options.epsilon}
    line |= {"delta": delta, "method": method.name, "images": options.images, "epochs": options.epochs, **found}
    mean = round(statistics.mean(found.values()), 1)
    print_result({**provenance(), **line, "best": max(found.values()), "mean": mean})


if __name__ == "__main__":
    main()
