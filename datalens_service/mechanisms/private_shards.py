"""Behind the wall, too: a teacher for each shard of units, whose state nobody reads but its own charged votes.

A run deals records to shards, and names three functions of modules: one makes the teachers of a rank, one lets each
learn from a batch of its own shard, one says what each votes. What any of them raises is told once the vote
is charged, and not where a run could catch it. They are computed side by side, but what a teacher knows
and says is a function of its own shard and of released values (a test changes, moves and takes away all others). Ranks
share the teachers: rank 0 leads and alone has an account and noise; the sums of all meet before noise is drawn.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.base.errors import CheckpointMismatch, InvalidInput
from datalens_service.base.process_group import ProcessGroup, TorchProcessGroup
from datalens_service.data.dataset import Dataset, Schema, Upload
from datalens_service.data.partition import assign_shards, members
from datalens_service.data.shard_batches import ShardBatch, ShardSampler
from datalens_service.mechanisms.apart import Child, Replies
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.confined import HERE, confined, confined_items, prepared
from datalens_service.mechanisms.private_records import PrivateRecords, Vault, WallBroken, check_function
from datalens_service.mechanisms.votes import (
    Directions,
    DistributedGradients,
    GradientBlocks,
    PartialGradients,
    VoteMechanism,
)
from datalens_service.privacy.randomness import NoiseSource

PRIVATE_READS = ("training",)

_DEALT: Final = "dealt"
"""Name, among numbers of teachers, of those by which their shards are known."""


class Dealing(NamedTuple):
    """Public: how records are dealt."""

    parts: Sequence[range]
    """Numbers of all shards in order, cut as ranks share them."""
    class_groups: int
    """1, or the number of classes: equal groups of shards then hold one class each."""
    batch: int
    """Records of its shard that a teacher sees at once."""
    seed: int


class Place(NamedTuple):
    """Public: where the teachers of a rank are."""

    device: str
    folder: Path | None
    """Private to the job, for what does not fit into memory."""
    group: ProcessGroup


class Shards(NamedTuple):
    """Private: the first batches of all shards of a rank, as its teachers are made of them."""

    batch: ShardBatch
    active: Tensor
    """bool (shards,), False where a shard is empty."""
    parts: list[range]
    device: str
    folder: Path | None


class Teachers(Protocol):
    """The teachers of a rank, one for each shard; what they are is up to whoever makes them."""

    @property
    def large(self) -> bool:
        """Whether their state is too large to be kept."""

    def state(self) -> dict[str, NDArray[Any]]:
        """All that learning changed, as copies."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state`."""


Make = Callable[[Shards, Any], Teachers]
"""Of first batches and of a released value, the teachers; what each starts as is a function of its own shard."""
Learn = Callable[[Any, ShardBatch, Any], None]
"""Of the teachers, a batch of each shard and a released value: one step of every teacher."""
Vote = Callable[[Any, Any], GradientBlocks]
"""Of the teachers and a released value: one row per teacher, in their order, for a mechanism that sums them."""


class PrivateShards:
    """A handle of teachers behind the wall.

    Args:
        records: Of which each unit is in one shard, or in one for each of its classes.
        dealing: Public.
        place: Of this rank, the first one.
        make: A function of a module.
        released: Made of earlier releases and of public values.
    """

    def __init__(self, records: PrivateRecords, dealing: Dealing, place: Place, make: Make, released: object) -> None:
        check_function(make)
        self.records, self.dealing, self.place, self.make = records, dealing, place, make
        self.released, self.lessons = copy.deepcopy(released), list[Lesson]()

    def learn(self, update: Learn, released: object, times: int) -> None:
        """Have every teacher make steps before the next vote, each with the next batch of its shard.

        Args:
            update: A function of a module; nothing of what it does is told.
            released: As of a vote.
            times: Number of steps.
        """
        check_function(update)
        self.lessons.append(Lesson(update, copy.deepcopy(released), times))


class ShardVault:
    """The teachers of rank 0, who have those of other ranks do the same.

    Args:
        source: Of the records.
        shards: Whose vault it is.
    """

    def __init__(self, source: Vault, shards: PrivateShards) -> None:
        # A group of the run's own would be handed sums without noise, and the key.
        if type(shards.place.group) not in (ProcessGroup, TorchProcessGroup):
            raise WallBroken("Ranks meet in a group of the product's own.")
        self._source, self._place = source, shards.place
        self._dealing, self._group, self._lessons = shards.dealing, shards.place.group, shards.lessons
        self._make, self._released = shards.make, shards.released
        self._made: TeacherVault | TeachersApart | None = None

    def release(
        self,
        mechanism: Mechanism[Any, Directions],
        vote: Vote,
        released: object,
        *,
        step: int,
        account: Account,
        noise: NoiseSource,
    ) -> Directions:
        """The charged, noisy sum over teachers of `vote(teachers, released)`, decoded.

        Args:
            mechanism: Encodes, checks the length of rows, charges and draws.
            vote: A function of a module.
            released: Made of earlier releases and of public values.

        Raises:
            WallBroken: The price is that of other shards, or a function could take more along than its arguments.
        """
        check_function(vote)
        if not isinstance(mechanism, VoteMechanism) or mechanism.classes_voted_apart != self._dealing.class_groups:
            raise WallBroken("Votes have the price of the shards that records were dealt to.")
        command = _Vote(mechanism, vote, copy.deepcopy(released))
        # Teachers learn although the vote is stored already: later ones are theirs, too.
        answer = prepared(self._teach, partial(self._ask, command))
        return mechanism.release(answer, step=step, account=account, noise=noise)

    def state(self) -> dict[str, NDArray[Any]]:
        """What teachers know, private; empty if that is nothing, too large to be kept, or not all of it.

        A job is resumed without it: teachers learn again while the stored sums are replayed.
        """
        if self._made is None or not self._made.steps or self._group.world_size > 1:
            return {}
        state = self._made.state()
        return state and state | {_DEALT: self._dealt()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointMismatch: It belongs to other teachers.
        """
        if not np.array_equal(state.get(_DEALT, ()), self._dealt()):
            raise CheckpointMismatch("The checkpoint holds teachers of other shards.")
        self._teachers().restore({name: value for name, value in state.items() if name != _DEALT})

    def _dealt(self) -> NDArray[np.uint8]:
        """By which teachers of the same shards are known."""
        return np.frombuffer(hashlib.sha256(repr(self._dealing).encode()).digest(), dtype=np.uint8)

    def _ask(self, command: _Vote) -> DistributedGradients:
        self._group.broadcast(command)
        return self._teachers().votes(command.vote, command.released)

    def _teach(self) -> None:
        teachers = self._teachers()
        while self._lessons:
            self._group.broadcast(self._lessons[0])
            self._lessons[0].obey(teachers)
            # One that failed stays: so does the next vote.
            del self._lessons[0]
        # One that is gone, or reads other records, is missed before the vote is charged.
        self._group.broadcast(_Meet())
        _Meet().obey(teachers)

    def _teachers(self) -> TeacherVault | TeachersApart:
        """Those of this rank, who are made before their first lesson or vote."""
        if self._made is None:
            source, group = self._source, self._group
            with source.opened():
                digest = _digest(source.schema, source.rows()) if group.world_size > 1 else b""
            deal = _Deal(self._dealing, self._place.device, self._make, self._released, source.partition_key, digest)
            group.broadcast(deal)
            begin = partial(TeacherVault, source, deal, self._place)
            self._made = begin() if source.calls is HERE else TeachersApart(begin, group.all_reduce)
        return self._made


def run_follower(group: ProcessGroup, upload: Upload, folder: Path | None = None) -> None:
    """Obey the commands of rank 0 until it shuts the group down.

    Args:
        upload: The same records as those of rank 0.
        folder: For teachers beyond the limit of memory.

    Raises:
        RankLost: Another rank ended or was silent for too long.
        InvalidInput: The records are not those of rank 0.
    """
    vault: TeacherVault | None = None
    while (command := group.receive()) is not None:
        if isinstance(command, _Deal):
            records = Vault.from_dataset(Dataset(*upload, partition_key=command.key))
            vault = TeacherVault(records, command, Place(command.device, folder, group))
        elif vault is not None:
            command.obey(vault)


class _Deal(NamedTuple):
    """Command to make teachers in place of those before; private."""

    dealing: Dealing
    device: str
    make: Make
    released: object
    key: bytes
    digest: bytes


class Lesson(NamedTuple):
    """Command to make steps."""

    update: Learn
    released: object
    times: int

    def obey(self, vault: TeacherVault | TeachersApart) -> None:
        """Have teachers make them."""
        vault.learn(self.update, self.released, self.times)


class _Meet(NamedTuple):
    """Command to meet all other ranks."""

    def obey(self, vault: TeacherVault | TeachersApart) -> None:
        vault.all_reduce(np.zeros(1, dtype=np.int64))


class _Vote(NamedTuple):
    """Command to vote."""

    mechanism: VoteMechanism
    vote: Vote
    released: object

    def obey(self, vault: TeacherVault | TeachersApart) -> None:
        # The sum belongs to rank 0.
        self.mechanism.exact_sum(vault.votes(self.vote, self.released))


class TeacherVault:
    """Shards of a rank and their teachers, which are reached while a question is open, after so many `steps`."""

    def __init__(self, records: Vault, deal: _Deal, place: Place) -> None:
        check_function(deal.make)
        self._records, self.all_reduce, self.steps = records, place.group.all_reduce, 0
        parts, device = place.group.share(deal.dealing.parts), place.group.local_device(deal.device)
        self._local = range(parts[0].start, parts[-1].stop)
        with self._records.opened():
            rows = self._records.rows()
            if deal.digest and deal.digest != _digest(records.schema, rows):
                raise InvalidInput("This rank reads other records than rank 0: give all the same file.")
            apart, count = deal.dealing.class_groups > 1, deal.dealing.parts[-1].stop
            dealt = assign_shards(
                deal.key, rows.units, count, rows.labels if apart else None, deal.dealing.class_groups
            )
            self._sampler = ShardSampler(
                rows.values,
                rows.labels,
                members(dealt, count),
                deal.dealing.batch,
                deal.dealing.seed,
                device,
                self._local,
            )
            shards = Shards(self._sampler.batch(0), self._sampler.active, parts, device, place.folder)
            self._made = confined(deal.make, shards, deal.released)

    def teachers(self) -> Teachers:
        """All of this rank.

        Raises:
            WallBroken: No question is open.
        """
        self._records.rows()
        return self._made

    def learn(self, update: Learn, released: object, times: int) -> None:
        """The next steps of every teacher."""
        check_function(update)
        with self._records.opened():
            for _ in range(times):
                confined(update, self.teachers(), self._sampler.batch(self.steps), released)
                self.steps += 1

    def votes(self, vote: Vote, released: object) -> DistributedGradients:
        """What a mechanism sums, here and on all other ranks."""
        check_function(vote)
        return DistributedGradients(self.blocks(vote, released), self._local.start, self.all_reduce)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that learning changed; empty if that is too large."""
        return {} if self._made.large else self._made.state() | {"teacher_steps": np.array(self.steps)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._made.restore({name: value for name, value in state.items() if name != "teacher_steps"})
        self.steps = int(state["teacher_steps"])

    def blocks(self, vote: Vote, released: object) -> Iterator[Tensor | PartialGradients]:
        """Votes of some teachers after the other."""
        voters = 0
        with self._records.opened():
            for block in confined_items(iter(confined(vote, self.teachers(), released))):
                voters += len(block.gradients if isinstance(block, PartialGradients) else block)
                yield block
        if voters != len(self._local):
            raise WallBroken("Every teacher votes once.")


class TeachersApart:
    """The teachers of a job, all of them, in a process of their own, which ends with the job.

    Args:
        begin: Makes them, there.
        all_reduce: Of the one rank.
    """

    def __init__(self, begin: Callable[[], TeacherVault], all_reduce: Callable[[Any], Any]) -> None:
        self.all_reduce, self.steps = all_reduce, 0
        self._child = Child(partial(_obey, begin))

    def learn(self, update: Learn, released: object, times: int) -> None:
        """The next steps of every teacher."""
        self._asked("learn", update, released, times)
        self.steps += times

    def votes(self, vote: Vote, released: object) -> DistributedGradients:
        """What a mechanism sums."""
        return DistributedGradients(self._child.ask("blocks", vote, released), 0, self.all_reduce)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that learning changed; empty if that is too large."""
        (state,) = self._asked("state")
        return dict(state)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._asked("restore", state)
        self.steps = int(state["teacher_steps"])

    def _asked(self, name: str, *arguments: object) -> list[Any]:
        return list(self._child.ask(name, *arguments))


def _obey(begin: Callable[[], TeacherVault], questions: Iterator[tuple[str, tuple[Any, ...]]], way: Replies) -> None:
    """What the process of teachers does, until nobody asks any more."""
    teachers = None
    for name, arguments in questions:
        with way.ending():
            teachers = teachers or begin()
            made = getattr(teachers, name)(*arguments)
            for one in made if name == "blocks" else [] if made is None else [made]:
                way.send(one)


def _digest(schema: Schema, rows: Any) -> bytes:
    """Of the records; private, it goes to other ranks only."""
    digest = hashlib.sha256(schema.model_dump_json().encode())
    for array in rows:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
