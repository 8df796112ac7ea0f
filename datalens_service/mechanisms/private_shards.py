"""Teachers behind the wall: one for each shard of units, whose state is read by its own charged votes alone.

A run assigns records to shards, and names three functions of modules: one makes the teachers of a rank, one lets each
learn from a batch of its own shard, one returns their votes. What any of them raises reaches the run once the vote
is charged, where its script cannot catch it. All teachers are computed side by side, but the state and the vote of one
are functions of its own shard and of released values (a test changes, moves and takes away all others). Ranks
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
"""The member of a checkpoint that identifies the shards its teachers belong to."""


class Dealing(NamedTuple):
    """Public: the assignment of records to shards."""

    parts: Sequence[range]
    """Numbers of all shards in order, cut into one range for each rank."""
    class_groups: int
    """The number of classes where equal groups of shards hold one class each, else 1."""
    batch: int
    """Records of its shard that a teacher sees at once."""
    seed: int


class Place(NamedTuple):
    """Public: where the teachers of a rank are computed and kept."""

    device: str
    folder: Path | None
    """A folder private to the job, for what does not fit into memory."""
    group: ProcessGroup


class Shards(NamedTuple):
    """Private: the first batches of all shards of a rank, from which its teachers are made."""

    batch: ShardBatch
    active: Tensor
    """bool (shards,), False where a shard is empty."""
    parts: list[range]
    device: str
    folder: Path | None


class Teachers(Protocol):
    """The teachers of a rank, one for each shard, in whatever form their maker chose."""

    @property
    def large(self) -> bool:
        """Tell whether their state is too large to be kept."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all that learning changed."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a copy that `state` returned."""


Make = Callable[[Shards, Any], Teachers]
"""Makes teachers from first batches and a released value; each starts as a function of its own shard."""
Learn = Callable[[Any, ShardBatch, Any], None]
"""Takes one step of every teacher, given a batch of each shard and a released value."""
Vote = Callable[[Any, Any], GradientBlocks]
"""Yields one row per teacher, in their order, for a mechanism that sums them, given a released value."""


class PrivateShards:
    """A handle of teachers behind the wall.

    Args:
        records: The records; each unit is in one shard, or in one for each of its classes.
        dealing: Public.
        place: The place of this rank, the first one.
        make: A function of a module.
        released: Made of earlier releases and of public values.
    """

    def __init__(self, records: PrivateRecords, dealing: Dealing, place: Place, make: Make, released: object) -> None:
        check_function(make)
        self.records, self.dealing, self.place, self.make = records, dealing, place, make
        self.released, self.lessons = copy.deepcopy(released), list[Lesson]()

    def learn(self, update: Learn, released: object, times: int) -> None:
        """Order steps that every teacher makes before the next vote, each with the next batch of its shard.

        Args:
            update: A function of a module; nothing it does comes back.
            released: Made of earlier releases and of public values.
            times: Number of steps.
        """
        check_function(update)
        self.lessons.append(Lesson(update, copy.deepcopy(released), times))


class ShardVault:
    """The teachers of rank 0, which directs those of other ranks.

    Args:
        source: The vault of the records.
        shards: The handle that this vault answers for.
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
        """Release the charged, noisy sum over teachers of `vote(teachers, released)`, decoded.

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
        """Return the private state of all teachers; empty if there is none, if it is too large, or if ranks share it.

        A job is resumed without it: teachers learn again while the stored sums are replayed.
        """
        if self._made is None or not self._made.steps or self._group.world_size > 1:
            return {}
        state = self._made.state()
        return state and state | {_DEALT: self._dealt()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointMismatch: The state belongs to other teachers.
        """
        if not np.array_equal(state.get(_DEALT, ()), self._dealt()):
            raise CheckpointMismatch("The checkpoint holds teachers of other shards.")
        self._teachers().restore({name: value for name, value in state.items() if name != _DEALT})

    def _dealt(self) -> NDArray[np.uint8]:
        """Return a digest that identifies the shards of these teachers."""
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
        """Return the teachers of this rank, and make them before their first lesson or vote."""
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
        folder: Holds teachers that exceed the limit of memory.

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
        vault.learn(self.update, self.released, self.times)


class _Meet(NamedTuple):
    """Command to meet all other ranks."""

    def obey(self, vault: TeacherVault | TeachersApart) -> None:
        vault.all_reduce(np.zeros(1, dtype=np.int64))


class _Vote(NamedTuple):
    mechanism: VoteMechanism
    vote: Vote
    released: object

    def obey(self, vault: TeacherVault | TeachersApart) -> None:
        # The sum belongs to rank 0.
        self.mechanism.exact_sum(vault.votes(self.vote, self.released))


class TeacherVault:
    """Shards of a rank and their teachers after `steps` steps, reached while a question is open."""

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
        """Return all teachers of this rank.

        Raises:
            WallBroken: No question is open.
        """
        self._records.rows()
        return self._made

    def learn(self, update: Learn, released: object, times: int) -> None:
        """Take the next steps of every teacher."""
        check_function(update)
        with self._records.opened():
            for _ in range(times):
                confined(update, self.teachers(), self._sampler.batch(self.steps), released)
                self.steps += 1

    def votes(self, vote: Vote, released: object) -> DistributedGradients:
        """Return the votes that a mechanism sums, of this rank and all others."""
        check_function(vote)
        return DistributedGradients(self.blocks(vote, released), self._local.start, self.all_reduce)

    def state(self) -> dict[str, NDArray[Any]]:
        return {} if self._made.large else self._made.state() | {"teacher_steps": np.array(self.steps)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self._made.restore({name: value for name, value in state.items() if name != "teacher_steps"})
        self.steps = int(state["teacher_steps"])

    def blocks(self, vote: Vote, released: object) -> Iterator[Tensor | PartialGradients]:
        """Yield the votes of some teachers after the other."""
        voters = 0
        with self._records.opened():
            for block in confined_items(iter(confined(vote, self.teachers(), released))):
                voters += len(block.gradients if isinstance(block, PartialGradients) else block)
                yield block
        if voters != len(self._local):
            raise WallBroken("Every teacher votes once.")


class TeachersApart:
    """All teachers of a job, in a process of their own that ends with the job.

    Args:
        begin: Makes the teachers, in that process.
        all_reduce: The sum over the single rank.
    """

    def __init__(self, begin: Callable[[], TeacherVault], all_reduce: Callable[[Any], Any]) -> None:
        self.all_reduce, self.steps = all_reduce, 0
        self._child = Child(partial(_obey, begin))

    def learn(self, update: Learn, released: object, times: int) -> None:
        self._asked("learn", update, released, times)
        self.steps += times

    def votes(self, vote: Vote, released: object) -> DistributedGradients:
        return DistributedGradients(self._child.ask("blocks", vote, released), 0, self.all_reduce)

    def state(self) -> dict[str, NDArray[Any]]:
        (state,) = self._asked("state")
        return dict(state)

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self._asked("restore", state)
        self.steps = int(state["teacher_steps"])

    def _asked(self, name: str, *arguments: object) -> list[Any]:
        return list(self._child.ask(name, *arguments))


def _obey(begin: Callable[[], TeacherVault], questions: Iterator[tuple[str, tuple[Any, ...]]], way: Replies) -> None:
    """Answer questions in the process of the teachers until no more come."""
    teachers = None
    for name, arguments in questions:
        with way.ending():
            teachers = teachers or begin()
            made = getattr(teachers, name)(*arguments)
            for one in made if name == "blocks" else [] if made is None else [made]:
                way.send(one)


def _digest(schema: Schema, rows: Any) -> bytes:
    """Return a digest of the records; it is private, and sent to other ranks only."""
    digest = hashlib.sha256(schema.model_dump_json().encode())
    for array in rows:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
