"""The published run of DataLens with fewer teachers, and one difference from the authors' code at a time.

    python -m benchmarks.authors --teachers 40 --votes 149 >> benchmarks/results/authors.jsonl
    python -m benchmarks.authors --teachers 40 --votes 149 --like batch_norm --seed 1

Every teacher has 15 records, the first ones of the set, or 30 of `signs`; `hundred` pairs digits to 100 classes. Noise
follows the number of teachers, so that a vote is as clear as the authors' vote of all of theirs. Such a run has no
guarantee: its noise is too small for its budget. It shows what the algorithm learns from votes of that clearness, on
public images, in minutes instead of days.

`--records` gives teachers fewer different records than places: what more teachers teach without more records.

`--like` takes over what the authors' code (commit 72d0f2f) does and the product does not:

    labels        a teacher trains on images of the classes of its own records (model.py:1197, 1417)
    batch_norm    teachers normalise by the statistics of a batch, of real and of synthetic images apart (ops.py:37)
    shared_adam   teachers share the moments of one optimiser, one after another (model.py:1258, 1316, 1386)
    start         80 teachers have the same initial weights (model.py:1371, 1402)
    shards        records are dealt class by class in turn: one or two of each of ten to a shard (model.py:87)

Accuracy is that of the standard CNN on real test images: after its last epoch, and the best of all epochs, which is how
the authors report theirs. `--by-batch` adds that of images drawn as they draw them, each 15 by the statistics of their
own batch, `--sgd-epochs` that of their classifier under their optimiser.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.earlier_judge import earlier_accuracy
from benchmarks.environment import dataset, provenance, with_records
from benchmarks.fidelity import Fidelity
from benchmarks.gpu import PARTS, take
from benchmarks.kept_results import print_result
from benchmarks.rows import PRESETS
from benchmarks.teacher_processes import use_processes
from benchmarks.utility import accuracy_of
from benchmarks.voting_runs import generators
from datalens_service.data import shard_batches
from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.evaluation.metrics import downstream
from datalens_service.mechanisms import private_shards
from datalens_service.methods.driver import Training
from datalens_service.methods.script import RunInputs
from datalens_service.models import trainer
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import ImageNetwork
from datalens_service.models.teachers import ensemble, networks
from datalens_service.models.teachers.networks import Unfold
from datalens_service.planning.published import COMMANDS, build_published
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.randomness import TrainingRandomness

_WHOLE_BUDGET: Final = 10**18
_ALIKE: Final = 80
"""Teachers that the authors train one after another in one place of their graph."""


class NoiseInProportion:
    """Gaussian noise that is as much smaller than asked for as there are fewer teachers; it protects nothing."""

    def __init__(self, share: float) -> None:
        self.share = share

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        """Whole numbers."""
        return np.rint(np.random.default_rng().normal(0, self.share * noise_stddev, shape)).astype(np.int64)


class NormalisingConv(networks.Conv):
    """The authors' discriminator with their batch norm: of the second convolution and the dense layer."""

    def shapes(self) -> dict[str, networks.Shape]:
        """Two scales more; the biases of these layers are what batch norm adds."""
        return super().shapes() | {"conv2.scale": (self.maps[1],), "dense.scale": (self.hidden,)}

    def initial_stddev(self, name: str) -> float:
        """Scales are kept as their distance from 1."""
        return 0.0 if name.endswith("scale") else super().initial_stddev(name)

    def first(self, parameters: networks.Parameters, private: Tensor, shared: Tensor, classes: Tensor) -> Tensor:
        """As before; how many images are real is remembered."""
        self.real = private.shape[1]
        return super().first(parameters, private, shared, classes)

    def rest(self, parameters: networks.Parameters, features: Tensor, classes: Tensor) -> Tensor:
        """Second convolution and dense layer normalised, then the logit."""
        n, batch = len(features), classes.shape[-1]
        patches = Unfold.apply(functional.leaky_relu(features, 0.2))
        maps = torch.baddbmm(self._label_maps(parameters, 1, classes), parameters["conv2.weight"], patches)
        maps = maps.view(n, self.maps[1], -1, batch)
        maps = self._normalised(maps, parameters["conv2.scale"], parameters["conv2.bias"])
        flat = functional.leaky_relu(maps, 0.2).reshape(n, -1, batch)
        products: Tensor = networks._DenseProduct.apply(parameters["dense.weight"], flat)
        products = (products + networks._labels_and_bias(parameters, "dense", classes))[:, :, None]
        products = self._normalised(products, parameters["dense.scale"], parameters["dense.bias"])[:, :, 0]
        hidden = functional.leaky_relu(products, 0.2)
        said = networks._labels_and_bias(parameters, "output", classes)
        return (torch.bmm(parameters["output.weight"], hidden) + said)[:, 0]

    def _normalised(self, values: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """(n, maps, places, images): real and synthetic images by their own statistics, which are those of a row."""
        parts = [part for part in values.split([self.real, values.shape[-1] - self.real], dim=-1) if part.shape[-1]]
        whitened = [functional.layer_norm(part, part.shape[2:], eps=1e-5) for part in parts]
        return torch.cat(whitened, dim=-1) * (1 + scale)[..., None, None] + shift[..., None, None]


def like_batch_norm() -> None:
    """Teachers with batch norm."""
    networks.ARCHITECTURES["conv"] = NormalisingConv


def like_start() -> None:
    """The first teacher of each 80 starts with weights of its own, the others with the same."""
    draw = ensemble.TeacherEnsemble._draw

    def draw_some(self: ensemble.TeacherEnsemble, seed: int) -> None:
        draw(self, seed)
        for value in self._adam_state.parameters.values():
            for group in torch.split(value, _ALIKE):
                group.copy_(group[:1].clone())

    ensemble.TeacherEnsemble._draw = draw_some  # type: ignore[method-assign]


def like_shards() -> None:
    """Records in their order, of which `few` took every class in turn; a batch is a shard, always in this order."""

    def deal(_key: bytes, unit_ids: Labels, num_shards: int, *_of_classes: Any) -> Labels:
        return unit_ids * num_shards // len(unit_ids)

    def draw(self: shard_batches.ShardSampler, _step: int) -> Tensor:
        return self._starts[:, None] + torch.arange(self._batch_size)

    def in_order(shards: Sequence[Labels], local: range, _seed: int) -> Labels:
        return np.concatenate([*(shards[shard] for shard in local), np.zeros(1, dtype=np.int64)])

    private_shards.assign_shards = deal  # type: ignore[assignment,attr-defined]
    shard_batches._shuffled = in_order  # type: ignore[assignment]
    shard_batches.ShardSampler._draw = draw  # type: ignore[assignment,method-assign]


def like_labels() -> None:
    """Each teacher sees images that the student makes of the classes of its records."""
    learn, propose = ensemble.TeacherEnsemble.train_step, trainer.StudentTrainer.propose
    students: list[trainer.StudentTrainer] = []

    def remember(self: trainer.StudentTrainer, seed: int, images: int, *, balanced: bool = False) -> Any:
        students[:] = [self]
        return propose(self, seed, images, balanced=balanced)

    def train_step(self: ensemble.TeacherEnsemble, real: Tensor, classes: Tensor, *_same_for_all: Tensor) -> None:
        (student,) = students
        if student._proposal is None:
            raise RuntimeError("teachers learn from a proposal")
        inputs = student._proposal.inputs[: classes.shape[1]]
        distinct, which = torch.unique(classes, dim=0, return_inverse=True)
        with torch.no_grad():
            images = torch.stack([student._network(inputs, labels) for labels in distinct])[which]
        learn(self, real, classes, images, classes)

    trainer.StudentTrainer.propose = remember  # type: ignore[method-assign]
    ensemble.TeacherEnsemble.train_step = train_step  # type: ignore[assignment,method-assign]


def like_shared_adam() -> None:
    """One pair of moments. Each teacher takes all its steps before a vote, from them as the one before left them."""
    draw, answers = ensemble.TeacherEnsemble._draw, ensemble.TeacherEnsemble.image_gradients
    waiting: list[tuple[Tensor, ...]] = []

    def share(self: ensemble.TeacherEnsemble, seed: int) -> None:
        if self.num_teachers > _ALIKE:
            raise SystemExit(f"moments are shared by {_ALIKE} teachers at most")
        draw(self, seed)
        for part in (self._adam_state.first, self._adam_state.second):
            part.update({name: value[:1].clone().expand_as(value) for name, value in part.items()})

    def wait(_self: ensemble.TeacherEnsemble, *batch: Tensor) -> None:
        waiting.append(batch)

    def learn_and_answer(self: ensemble.TeacherEnsemble, *question: Any) -> Any:
        for teacher in range(self.num_teachers):
            row = slice(teacher, teacher + 1)
            for real, classes, images, labels in waiting:
                own = (images[teacher], labels[teacher]) if images.ndim == 3 else (images, labels)
                self._train_block(row, real[row], classes[row], *own)
                self._steps += 1
        waiting.clear()
        return answers(self, *question)

    ensemble.TeacherEnsemble._draw = share  # type: ignore[method-assign]
    ensemble.TeacherEnsemble.train_step = wait  # type: ignore[assignment,method-assign]
    ensemble.TeacherEnsemble.image_gradients = learn_and_answer  # type: ignore[assignment,method-assign]


LIKE: Final[dict[str, Callable[[], None]]] = {
    "batch_norm": like_batch_norm,
    "labels": like_labels,
    "shards": like_shards,
    "shared_adam": like_shared_adam,
    "start": like_start,
}


def opened(name: str) -> Dataset:
    """A public set, or pairs of digits."""
    return take(dataset("mnist"), PARTS[name], 1.0) if name in PARTS else dataset(name)


def few(data: Dataset, count: int, in_turn: bool) -> Dataset:
    """The first records, or those of each class in turn, while a class has some."""
    rows, labels = np.arange(data.schema.num_units), data.train.labels
    if in_turn:
        turn = np.empty_like(rows)
        for label in range(data.schema.num_classes):
            turn[labels == label] = np.arange(np.count_nonzero(labels == label))
        rows = np.lexsort((labels, turn))
    return with_records(data, rows[:count])


def shared(data: Dataset, count: int, in_turn: bool) -> Dataset:
    """So many records made of those of a smaller set: each several times, in shards of other company every time."""
    rows = np.arange(data.schema.num_units).reshape(-1, data.schema.num_classes if in_turn else 1)
    rng = np.random.default_rng(0)
    more = [rng.permuted(rows, axis=0) for _ in range(-(-count // rows.size) - 1)]
    return with_records(data, np.concatenate([rows, *more]).ravel()[:count])


def draw_by_batch(network: ImageNetwork, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
    """As the authors draw, 15 images in one batch."""
    network.train()
    inputs = torch.from_numpy(network.inputs(labels, rng))
    parts = zip(inputs.split(15), torch.from_numpy(labels).split(15), strict=True)
    with torch.no_grad():
        return np.asarray(torch.cat([network(*part) for part in parts]).clamp(0.0, 1.0).numpy())


def last_and_best(accuracies: Iterable[float]) -> dict[str, float]:
    """Of all epochs, in percent."""
    values = [round(each, 2) for each in accuracies]
    return {"last": values[-1], "best": max(values)}


def standard(drawn: Images, labels: Labels, data: Dataset, options: argparse.Namespace) -> dict[str, float]:
    """Accuracy of the standard CNN."""
    epochs = range(1, options.epochs + 1)
    return last_and_best(earlier_accuracy(drawn, labels, data, count, options.seed) for count in epochs)


def by_sgd(drawn: Images, labels: Labels, data: Dataset, options: argparse.Namespace) -> Iterator[float]:
    """Accuracy of the authors' classifier under SGD, after every epoch.

    Theirs takes 600 epochs of 100,000 images at a rate of 0.002 in batches of 512: 117,600 steps. A rate ten times as
    large, with a momentum of 0.9, goes as far in a hundredth of the steps; batches of 64 make them cheaper.
    """
    pixels, targets = downstream.scaled(torch.from_numpy(drawn)), torch.from_numpy(labels)
    torch.manual_seed(options.seed)
    network = theirs(data.schema.num_classes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(options.sgd_epochs):
        network.train()
        for rows in torch.split(torch.randperm(len(targets)), 64):
            optimizer.zero_grad()
            functional.cross_entropy(network(pixels[rows]), targets[rows]).backward()
            optimizer.step()
        yield accuracy_of(network, data)


def theirs(num_classes: int) -> nn.Module:
    """The authors' classifier of 28×28 images, with the initial weights of Keras."""
    network = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * 11 * 11, 64), nn.ReLU(), nn.Linear(64, num_classes),
    )  # fmt: skip
    for name, value in network.named_parameters():
        nn.init.zeros_(value) if name.endswith("bias") else nn.init.xavier_uniform_(value)
    return network


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    published = COMMANDS[PRESETS[options.dataset]][0 if options.epsilon == 1 else 1]
    count, in_turn = options.teachers * published.batch, "shards" in options.like
    data = few(opened(options.dataset), options.records or count, in_turn)
    data = shared(data, count, in_turn) if options.records else data
    # What changes teachers themselves comes before their processes, and what they are told after.
    for name in sorted({*options.like} - {"labels"}):
        LIKE[name]()
    if options.processes:
        use_processes(options.processes, options.memory_gib)
    if "labels" in options.like:
        like_labels()
    method = build_published(PRESETS[options.dataset], data.schema, options.epsilon)
    method = method.model_copy(update={"noise_stddev": published.noise_stddev, "steps": options.votes})
    changes = {name: json.loads(value) for name, value in (given.split("=") for given in options.set)}
    method = type(method).model_validate(method.model_dump() | changes)
    plan = method.plan(data.schema, _WHOLE_BUDGET)
    account, inputs = UnchargedAccount(), RunInputs(TrainingRandomness(options.seed))
    training = Training(method, plan, data, account, inputs)
    noise: Any = NoiseInProportion(options.teachers / published.num_teachers)
    clock = time.monotonic if options.processes else time.process_time
    points = [
        {"votes": votes, "seconds": seconds, **judged(generator, data, options)}
        for votes, seconds, generator in generators(training, options.votes, noise, options.at, clock)
    ]
    return {
        "dataset": options.dataset, "published_epsilon": options.epsilon, "teachers": options.teachers,
        "records": options.records or count, "noise_stddev": noise.share * (method.noise_stddev or 0),
        "like": options.like, "changes": changes, "seed": options.seed,
        "processes": options.processes, "synthetic_images": options.images,
        "epochs": options.epochs, "sgd_epochs": options.sgd_epochs, "points": points,
    }  # fmt: skip


def judged(generator: Generator, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy of what learns from its images, and what else was asked for."""
    drawn, labels = generator.sample(options.images, seed=options.seed)
    scores: dict[str, Any] = standard(drawn, labels, data, options)
    if options.by_batch:
        with patch.object(ImageNetwork, "draw", draw_by_batch):
            scores["by_batch"] = standard(*replace(generator).sample(options.images, seed=options.seed), data, options)
    if options.fidelity:
        scores["fidelity"] = Fidelity(options.dataset, data, held_out=False).of(drawn, labels)
    if options.sgd_epochs:
        scores["sgd"] = last_and_best(by_sgd(drawn, labels, data, options))
    return scores


def main() -> None:
    """Parse, run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=PRESETS, default="mnist")
    parser.add_argument("--epsilon", type=int, choices=[1, 10], default=1, help="whose published settings are taken")
    parser.add_argument("--teachers", type=int, default=40)
    parser.add_argument("--records", type=int, help="that all teachers share; as many as they have places if not given")
    parser.add_argument("--votes", type=int, default=149, help="steps of 15 images; exact accounting allows 149 at 1")
    parser.add_argument("--like", nargs="*", choices=sorted(LIKE), default=[], help="what is taken over")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="settings other than published")
    parser.add_argument("--fidelity", action="store_true", help="of the images, by the fixed extractor of the set")
    parser.add_argument("--by-batch", action="store_true", help="judge images by the statistics of their batch as well")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sgd-epochs", type=int, default=0, help="of their classifier; 8 with 10,000 images go as far")
    parser.add_argument("--processes", type=int, help="that teachers run in; seconds are then those of the wall clock")
    parser.add_argument(
        "--memory-gib",
        type=float,
        default=16.0,
        help="GiB of weights that processes keep in memory; others lie in files",
    )
    parser.add_argument("--at", type=float, nargs="+", default=[1.0], help="shares of the run after which it is judged")
    options = parser.parse_args()
    if options.processes and "shared_adam" in options.like:
        parser.error("teachers in processes share no moments: leave --processes or shared_adam out")
    origin = provenance()
    print_result(origin | measured(options))


if __name__ == "__main__":
    main()
