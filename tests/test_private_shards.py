"""Teachers behind the wall: a run learns their noisy votes, and nothing else of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from datalens_service.base.checkpoint import Checkpoints
from datalens_service.base.errors import CheckpointMismatch, ContributionFailed
from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import PartialGradients, TopAgg
from datalens_service.mechanisms.private_records import PrivateRecords, Vault, WallBroken
from datalens_service.mechanisms.private_shards import Dealing, Place, PrivateShards, Shards, ShardVault
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

TEACHERS, IMAGES, SIDE = 6, 4, 4
DEALING = Dealing([range(TEACHERS)], 1, 3, 0)
HERE = Place("cpu", None, SINGLE_PROCESS)
VOTES = TopAgg(
    num_teachers=TEACHERS, images=IMAGES, dimensions=SIDE**2, clip=1.0, stochastic=False, threshold="none",
    noise_stddev=5_000, top_k=3,
)  # fmt: skip
RELEASED = {"step": 1.0}


class Means:
    """Teachers that remember sums of their records."""

    large = False

    def __init__(self, count: int) -> None:
        self.sums = torch.zeros(count, SIDE**2)

    def state(self) -> dict[str, np.ndarray]:
        return {"sums": self.sums.numpy().copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.sums = torch.from_numpy(state["sums"].copy())


def make(shards: Shards, _released: Any) -> Means:
    return Means(len(shards.active))


def learn(teachers: Means, batch: ShardBatch, released: dict[str, float]) -> None:
    teachers.sums += released["step"] * batch.images.float().mean(dim=1)


def learn_and_write(teachers: Means, batch: ShardBatch, released: dict[str, float]) -> None:
    released["step"] = float(batch.images.max())


def vote(teachers: Means, _released: Any) -> Iterator[Tensor]:
    yield teachers.sums[:, None].expand(-1, IMAGES, -1)


def vote_without_one(teachers: Means, released: Any) -> Iterator[Tensor]:
    yield from (block[1:] for block in vote(teachers, released))


def vote_once_for_all_images(teachers: Means, _released: Any) -> Iterator[Any]:
    yield PartialGradients(teachers.sums[:, None], slice(0, IMAGES))


def records() -> Vault:
    images = np.random.default_rng(0).integers(0, 256, (30, SIDE, SIDE, 1), dtype=np.uint8)
    schema = Schema(channels=1, height=SIDE, width=SIDE, class_names=("a", "b"), num_units=30)
    return Vault.from_dataset(Dataset(schema, Split(images, np.arange(30) % 2), None, b"k" * 32))


class Asked:
    """A handle and what it stands for, as a script and its driver have them."""

    def __init__(self, source: Vault, dealing: Dealing, place: Place, maker: Any) -> None:
        self.handle = PrivateShards(PrivateRecords(source.schema), dealing, place, maker, None)
        self.vault = ShardVault(source, self.handle)
        self.learn, self.release = self.handle.learn, self.vault.release
        self.state, self.restore = self.vault.state, self.vault.restore


def shards(dealing: Dealing = DEALING, place: Place = HERE, maker: Any = make) -> Asked:
    return Asked(records(), dealing, place, maker)


def asked(of: Asked, voting: Any = vote, mechanism: TopAgg = VOTES, step: int = 0) -> MemoryAccount:
    account = MemoryAccount(10**30)
    of.release(mechanism, voting, None, step=step, account=account, noise=NoiseSource())
    return account


def test_votes_are_charged_and_handed_out_with_noise() -> None:
    teachers = shards()
    teachers.learn(learn, RELEASED, times=2)
    account = MemoryAccount(10**30)
    answer = teachers.release(VOTES, vote, None, step=0, account=account, noise=NoiseSource())
    assert account.charged_units == VOTES.cost()
    np.testing.assert_array_equal(answer, VOTES.decode(account.replay(0)))


def test_a_stored_vote_asks_no_teacher() -> None:
    teachers, account = shards(), MemoryAccount(10**30)
    for voting in (vote, vote_without_one):
        teachers.release(VOTES, voting, None, step=0, account=account, noise=NoiseSource())
    assert len(account.charges) == 1


def test_the_capability_has_no_way_to_a_teacher() -> None:
    assert {name for name in dir(shards().handle) if not name.startswith("_")} == {
        *("records", "dealing", "place", "make", "released", "lessons", "learn")
    }


def test_teachers_are_sealed_but_for_an_open_question() -> None:
    teachers = shards()
    teachers.learn(learn, RELEASED, times=1)
    asked(teachers)
    with pytest.raises(WallBroken, match="charged sum"):
        teachers.vault._made.teachers()


def test_functions_take_nothing_along() -> None:
    def local(*_: Any) -> Any:
        return Means(TEACHERS)

    with pytest.raises(WallBroken, match="function of a module"):
        shards(maker=local)
    with pytest.raises(WallBroken, match="function of a module"):
        shards().learn(local, RELEASED, times=1)
    with pytest.raises(WallBroken, match="function of a module"):
        asked(shards(), local)


def test_learning_leaves_nothing_behind_in_what_it_was_given() -> None:
    released, teachers = dict(RELEASED), shards()
    assert teachers.learn(learn_and_write, released, times=1) is None
    asked(teachers)
    assert released == RELEASED


def test_every_teacher_votes_once_on_every_of_its_images() -> None:
    with pytest.raises(WallBroken, match="votes once"):
        asked(shards(), vote_without_one)
    with pytest.raises(Exception, match="one row for each"):
        asked(shards(), vote_once_for_all_images)


def make_failing(shards: Shards, _released: Any) -> Means:
    raise ArithmeticError(shards.batch.images.float().mean())


def learn_failing(_teachers: Means, batch: ShardBatch, _released: Any) -> None:
    raise ArithmeticError(batch.images.float().mean())


def vote_failing(teachers: Means, _released: Any) -> Iterator[Tensor]:
    yield from vote_without_one(teachers, None)
    raise ArithmeticError(teachers.sums.mean())


@pytest.mark.parametrize(
    ("maker", "lesson", "voting"),
    [(make_failing, learn, vote), (make, learn_failing, vote), (make, learn, vote_failing)],
)
def test_what_teachers_raise_is_charged_and_carries_nothing(maker: Any, lesson: Any, voting: Any) -> None:
    teachers, account = shards(maker=maker), MemoryAccount(10**30)
    teachers.learn(lesson, RELEASED, times=1)
    with pytest.raises(ContributionFailed) as raised:
        teachers.release(VOTES, voting, None, step=0, account=account, noise=NoiseSource())
    assert account.charged_units == VOTES.cost()
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


def test_votes_have_the_price_of_their_shards() -> None:
    apart = VOTES.model_copy(update={"classes_voted_apart": 2})
    with pytest.raises(WallBroken, match="price of the shards"):
        asked(shards(), mechanism=apart)
    with pytest.raises(WallBroken, match="price of the shards"):
        asked(shards(DEALING._replace(class_groups=2)))


def test_ranks_meet_in_a_group_of_the_products_own() -> None:
    class Listening(ProcessGroup):
        def all_reduce(self, sums: Any) -> Any:
            return sums

    with pytest.raises(WallBroken, match="group"):
        shards(place=HERE._replace(group=Listening()))


def test_what_teachers_know_is_kept_from_the_vault_to_the_file_and_back(tmp_path: Path) -> None:
    teachers, checkpoints = shards(), Checkpoints(tmp_path / "checkpoint", "digest")
    assert teachers.state() == {}
    teachers.learn(learn, RELEASED, times=2)
    assert teachers.state() == {}, "they learn before the next vote"
    asked(teachers)
    assert teachers.state().keys() == {"sums", "teacher_steps", "dealt"}
    checkpoints.save(3, teachers.state())
    step, loaded = checkpoints.load() or (0, {})
    assert step == 3
    again = shards()
    again.restore(loaded)
    np.testing.assert_array_equal(*(one.state()["sums"] for one in (teachers, again)))
    assert again.vault._made.steps == 2


def test_teachers_do_not_move_to_other_shards() -> None:
    teachers, others = shards(), shards(DEALING._replace(class_groups=2))
    teachers.learn(learn, RELEASED, times=1)
    asked(teachers)
    with pytest.raises(CheckpointMismatch, match="other shards"):
        others.restore(teachers.state())
