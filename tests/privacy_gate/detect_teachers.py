"""Detector on teachers behind the wall: what each knows and says is a function of its own shard, in any company.

What a job asked its teachers is asked again of teachers whose neighbours all hold other records or none, and of a part
of them. A thousand and more are side by side. A teacher's place is public, and may move its last bits.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import VoteMechanism
from datalens_service.mechanisms.private_shards import Shards, TeacherVault
from datalens_service.methods import AnyMethod, DataLens, PateGan
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

from .alarm import expect

MANY = 16_500
"""Teachers; more than 1,024 are then computed side by side."""
_FEW = 1_200
_SIDE, _CLASSES = 4, 3
_COMMON: dict[str, Any] = {"images_per_step": 6, "steps": 2, "z_dim": 4, "student": "class_networks"}
_NETWORKS: dict[str, Any] = {"teacher_batch": 3, "teacher_warmup_steps": 2}
METHODS: tuple[AnyMethod, ...] = (
    DataLens(teacher="dense", num_teachers=MANY, top_k=5, **_COMMON, **_NETWORKS),
    DataLens(
        teacher="dense", num_teachers=_FEW, top_k=5, shards="class_pure", vote_basis="dct", vote_dimensions=9,
        votes="klevel", **_COMMON, **_NETWORKS,
    ),
    DataLens(teacher="kernel", num_teachers=MANY, top_k=5, teacher_batch=3, **_COMMON),
    DataLens(teacher="conv", num_teachers=192, top_k=5, **_COMMON, **_NETWORKS),
    PateGan(
        teacher="dense", num_teachers=_FEW, warm_start=None, discriminator="linear", votes={"scores": "relative"},
        **_COMMON, **_NETWORKS,
    ),
)  # fmt: skip


class Talk(NamedTuple):
    """What a run asked its teachers, in order."""

    make: Callable[..., Any]
    shards: Shards
    setting: Any
    asked: list[tuple[Callable[..., Any], ShardBatch | None, Any]]
    """Steps with their batches, and votes without one."""
    mechanism: VoteMechanism


class Vote(NamedTuple):
    """What teachers said: (teachers, images, coordinates), and on which images each block votes."""

    rows: Tensor
    images: list[str]


def teachers_are_functions_of_their_own_shards(rng: np.random.Generator) -> None:
    """R3, R6: other records of all others, and fewer others, change no bit of what a teacher says."""
    for method in METHODS:
        talk = _talk(method, rng)
        said = _said(talk)
        _others_change(talk, said, rng)
        _some_are_left_out(talk, said, rng)


def _others_change(talk: Talk, before: list[Vote], rng: np.random.Generator) -> None:
    stays = torch.from_numpy(rng.random(len(talk.shards.active)) < 0.5)
    emptied = ~stays & torch.from_numpy(rng.random(len(stays)) < 0.5)

    def changed(batch: ShardBatch) -> ShardBatch:
        images = torch.where(stays[:, None, None], batch.images, 255 - batch.images // 2)
        labels = torch.where(stays[:, None], batch.labels, (batch.labels + 1) % _CLASSES)
        return ShardBatch(images * ~emptied[:, None, None], labels * ~emptied[:, None])

    after = _said(_with(talk, changed, active=talk.shards.active & ~emptied))
    for one, other in zip(before, after, strict=True):
        _expect_same(one.rows[stays], other.rows[stays], talk, "what others hold")
        rows = [_encoded(talk, vote.rows)[stays] for vote in (one, other)]
        _expect_same(*rows, talk, "what others say")
        expect(one.images == other.images, "which images teachers vote on does not depend on records")
        expect(not torch.equal(one.rows[~stays], other.rows[~stays]), "the check sees teachers whose records changed")


def _some_are_left_out(talk: Talk, before: list[Vote], rng: np.random.Generator) -> None:
    """As on one of several ranks, which hold whole parts."""
    first, stop = sorted(rng.choice(len(talk.shards.parts) + 1, size=2, replace=False))
    parts = talk.shards.parts[first:stop]
    rows = slice(parts[0].start, parts[-1].stop)
    fewer = _with(talk, lambda batch: ShardBatch(*(part[rows] for part in batch)), talk.shards.active[rows], parts)
    for one, other in zip(before, _said(fewer), strict=True):
        _expect_same(one.rows[rows], other.rows, talk, "how many others there are")


def _talk(method: AnyMethod, rng: np.random.Generator) -> Talk:
    """Of a job of two votes; one shard in three is empty."""
    found: dict[str, Any] = {"asked": []}
    start, learn, votes = TeacherVault.__init__, TeacherVault.learn, TeacherVault.votes

    def started(self: TeacherVault, records: Any, deal: Any, place: Any) -> None:
        def made(shards: Shards, setting: Any) -> Any:
            found.update(make=deal.make, shards=shards, setting=setting)
            return deal.make(shards, setting)

        with mock.patch("datalens_service.mechanisms.private_shards.check_function"):
            start(self, records, deal._replace(make=made), place)

    def learned(self: TeacherVault, update: Any, released: Any, times: int) -> None:
        found["asked"] += [(update, self._sampler.batch(self.steps + number), released) for number in range(times)]
        learn(self, update, released, times)

    def voted(self: TeacherVault, vote: Any, released: Any) -> Any:
        found["asked"].append((vote, None, released))
        return votes(self, vote, released)

    patches = {"__init__": started, "learn": learned, "votes": voted}
    with mock.patch.multiple(TeacherVault, **patches):
        spec = TrainingSpec(method=method, epsilon=50.0, delta=1e-6)
        dataset = _records(method.num_teachers, rng)  # type: ignore[union-attr]
        run(spec, dataset, account=UnchargedAccount())
        found["mechanism"] = spec.plan(dataset.schema).releases[-1].mechanism
    return Talk(**found)


def _records(teachers: int, rng: np.random.Generator) -> Dataset:
    count = teachers + 1_000
    images = rng.integers(0, 256, (count, _SIDE, _SIDE, 1)).astype(np.uint8)
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b", "c"), num_units=count)
    return Dataset(schema, Split(images, rng.integers(_CLASSES, size=count)), None, b"k" * 32)


def _with(
    talk: Talk, change: Callable[[ShardBatch], ShardBatch], active: Tensor, parts: list[range] | None = None
) -> Talk:
    """The same questions about other shards."""
    shards = talk.shards._replace(batch=change(talk.shards.batch), active=active, parts=parts or talk.shards.parts)
    asked = [(function, batch and change(batch), released) for function, batch, released in talk.asked]
    return talk._replace(shards=shards, asked=asked)


def _said(talk: Talk) -> list[Vote]:
    teachers, said = talk.make(talk.shards, talk.setting), []
    for function, batch, released in talk.asked:
        if batch is not None:
            function(teachers, batch, released)
        else:
            # Blocks may be made in the same memory.
            copies = [copy.deepcopy(block) for block in function(teachers, released)]
            images = [str(getattr(block, "images", None)) for block in copies]
            said.append(Vote(torch.cat([getattr(block, "gradients", block) for block in copies]), images))
    return said


def _encoded(talk: Talk, said: Tensor) -> Tensor:
    """Rows of integers, of all teachers at once and with the same coins."""
    return talk.mechanism.encode(said, torch.Generator().manual_seed(1))


def _expect_same(before: Tensor, after: Tensor, talk: Talk, what: str) -> None:
    same = before.numpy().tobytes() == after.numpy().tobytes()
    expect(same, f"{type(talk.setting.teacher).__name__}: what a teacher says does not depend on {what}")
