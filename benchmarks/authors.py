"""The published run of DataLens with fewer teachers, and one difference from the authors' code at a time.

    python -m benchmarks.authors --teachers 40 --votes 149 >> benchmarks/results/authors.jsonl
    python -m benchmarks.authors --teachers 40 --votes 149 --like batch_norm --seed 1

Every teacher has 15 records, the first ones of the set. Noise follows the number of teachers, so that a vote is as
clear as the authors' vote of 4,000. Such a run has no guarantee: its noise is too small for its budget. It shows what
the algorithm learns from votes of that clearness, on public images, in minutes instead of days.

`--like` takes over one thing that the authors' code does and the product does not, because it would break the
guarantee or is not proved:

    labels        a teacher trains on images of the classes of its own records
    batch_norm    teachers normalise by the statistics of a batch, of real and of synthetic images apart
    shared_adam   teachers share the moments of one optimiser, one after another
    selection     coordinates are chosen after clipping (the product did so before version 1.1)

Accuracy is that of the standard CNN on real test images: after its last epoch, and the best of all epochs, which is how
the authors report theirs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.environment import PARTITION_KEY, dataset, provenance
from benchmarks.kept_results import print_result
from datalens_service.data.dataset import Dataset, Split
from datalens_service.evaluation.metrics import downstream
from datalens_service.mechanisms import topagg
from datalens_service.methods.script import RunInputs
from datalens_service.methods.training import Training
from datalens_service.models import adam, trainer
from datalens_service.models.generators.generator import Generator
from datalens_service.models.teachers import ensemble, networks
from datalens_service.models.teachers.unfold import Unfold
from datalens_service.planning.presets import RECORDS_PER_TEACHER
from datalens_service.planning.published import COMMANDS, build_published
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.privacy.randomness import TrainingRandomness

PRESETS: Final = {"mnist": "paper", "fashion_mnist": "paper_fashion_mnist"}
_WHOLE_BUDGET: Final = 10**18


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
        self._real = private.shape[1]
        return super().first(parameters, private, shared, classes)

    def rest(self, parameters: networks.Parameters, features: Tensor, classes: Tensor) -> Tensor:
        """Second convolution and dense layer normalised, then the logit."""
        n, batch = len(features), classes.shape[-1]
        patches = Unfold.apply(functional.leaky_relu(features, 0.2))
        maps = torch.baddbmm(self._label_maps(parameters, 1, classes), parameters["conv2.weight"], patches)
        maps = maps.view(n, self.maps[1], -1, batch)
        maps = self._normalised(maps, (2, 3), parameters["conv2.scale"], parameters["conv2.bias"])
        flat = functional.leaky_relu(maps, 0.2).reshape(n, -1, batch)
        products = torch.bmm(parameters["dense.weight"], flat) + networks._labels_and_bias(parameters, "dense", classes)
        products = self._normalised(products[:, :, None], (2, 3), parameters["dense.scale"], parameters["dense.bias"])[
            :, :, 0
        ]
        hidden = functional.leaky_relu(products, 0.2)
        said = networks._labels_and_bias(parameters, "output", classes)
        return (torch.bmm(parameters["output.weight"], hidden) + said)[:, 0]

    def _normalised(self, values: Tensor, over: tuple[int, ...], scale: Tensor, shift: Tensor) -> Tensor:
        """(n, maps, places, images): real and synthetic images by their own statistics."""
        parts = [part for part in values.split([self._real, values.shape[-1] - self._real], dim=-1) if part.shape[-1]]
        whitened = [
            (part - part.mean(dim=over, keepdim=True))
            * (part.var(dim=over, keepdim=True, unbiased=False) + 1e-5).rsqrt()
            for part in parts
        ]
        return torch.cat(whitened, dim=-1) * (1 + scale)[..., None, None] + shift[..., None, None]


def like_batch_norm() -> None:
    """Teachers with batch norm."""
    networks.ARCHITECTURES["conv"] = NormalisingConv


def like_selection() -> None:
    """Coordinates chosen among clipped ones, of which nearly all are equal."""
    sign_votes = topagg.sign_votes
    topagg.sign_votes = lambda gradients, top_k, clip, coins: sign_votes(
        gradients.clamp(-clip, clip), top_k, clip, coins
    )


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
        with torch.no_grad():
            images = torch.stack([student._network(inputs, labels) for labels in classes])
        learn(self, real, classes, images, classes)

    trainer.StudentTrainer.propose = remember  # type: ignore[method-assign]
    ensemble.TeacherEnsemble.train_step = train_step  # type: ignore[assignment,method-assign]


def like_shared_adam() -> None:
    """One pair of moments that every teacher finds as the one before left them."""

    def step(adam_state: adam.AdamState, gradients: networks.Parameters, steps: int, learning_rate: float) -> None:
        count = len(next(iter(gradients.values())))
        for teacher in range(count):
            source = adam_state.block(slice(teacher - 1, teacher)) if teacher else adam_state.block(slice(-1, None))
            own = adam_state.block(slice(teacher, teacher + 1))
            for name in gradients:
                own.first[name].copy_(source.first[name])
                own.second[name].copy_(source.second[name])
            part = {name: value[teacher : teacher + 1] for name, value in gradients.items()}
            adam.adam_step(own, part, steps * count + teacher, learning_rate)

    ensemble.adam_step = step  # type: ignore[attr-defined]


LIKE: Final[dict[str, Callable[[], None]]] = {
    "batch_norm": like_batch_norm,
    "labels": like_labels,
    "selection": like_selection,
    "shared_adam": like_shared_adam,
}


def few(data: Dataset, teachers: int) -> Dataset:
    """The first records, 15 a teacher."""
    count = RECORDS_PER_TEACHER * teachers
    schema = data.schema.model_copy(update={"num_units": count})
    train = Split(data.train.images[:count], data.train.labels[:count])
    return Dataset(schema, train, data.test, partition_key=PARTITION_KEY)


def accuracies(generator: Generator, data: Dataset, images: int, epochs: int, seed: int) -> dict[str, float]:
    """Of the standard CNN, after its last epoch and after its best."""
    drawn, labels = generator.sample(images, seed=seed)
    if data.test is None:
        raise SystemExit("the data set has no test split")
    values = []
    for count in range(1, epochs + 1):
        network = downstream.trained(drawn, labels, data.schema.num_classes, epochs=count, seed=seed, device="cpu")
        values.append(100 * float(np.mean(downstream.labelled(network, data.test.images, "cpu") == data.test.labels)))
    return {"last": round(values[-1], 2), "best": round(max(values), 2)}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    data = few(dataset(options.dataset), options.teachers)
    for name in options.like:
        LIKE[name]()
    published = COMMANDS[PRESETS[options.dataset]][0 if options.epsilon == 1 else 1]
    method = build_published(PRESETS[options.dataset], data.schema, options.epsilon)
    method = method.model_copy(update={"noise_stddev": published.noise_stddev, "steps": options.votes})
    plan = method.plan(data.schema, _WHOLE_BUDGET)
    account, inputs = UnchargedAccount(), RunInputs(TrainingRandomness(options.seed))
    training = Training(method, plan, data, account, inputs)
    noise: Any = NoiseInProportion(options.teachers / published.num_teachers)
    points, seconds = [], 0.0
    stops = {max(1, round(share * options.votes)) for share in options.at}
    for step in range(options.votes):
        began = time.process_time()
        training.step(noise)
        seconds += time.process_time() - began
        if step + 1 in stops:
            generator = training.outcome().model
            if not isinstance(generator, Generator):
                raise TypeError("voting makes a generator")
            scores = accuracies(generator, data, options.images, options.epochs, options.seed)
            points.append({"votes": step + 1, "seconds": round(seconds, 1), **scores})
    return {
        "dataset": options.dataset, "published_epsilon": options.epsilon, "teachers": options.teachers,
        "records": options.teachers * RECORDS_PER_TEACHER, "noise_stddev": noise.share * published.noise_stddev,
        "like": options.like, "seed": options.seed, "synthetic_images": options.images, "epochs": options.epochs,
        "points": points,
    }  # fmt: skip


def main() -> None:
    """Parse, run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=["mnist", "fashion_mnist"], default="mnist")
    parser.add_argument("--epsilon", type=int, choices=[1, 10], default=1, help="whose published settings are taken")
    parser.add_argument("--teachers", type=int, default=40)
    parser.add_argument("--votes", type=int, default=149, help="steps of 15 images; exact accounting allows 149 at 1")
    parser.add_argument("--like", nargs="*", choices=sorted(LIKE), default=[], help="what is taken over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--at", type=float, nargs="+", default=[1.0], help="shares of the run after which it is judged")
    options = parser.parse_args()
    origin = provenance()
    print_result(origin | measured(options))


if __name__ == "__main__":
    main()
