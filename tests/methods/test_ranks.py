"""Teachers over ranks: the result of one rank to the last bit, one charge and one draw, and an end to every failure."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed import set_timeout

from datalens_service.base.errors import ContributionFailed, InvalidSpec
from datalens_service.base.process_group import SINGLE_PROCESS, ProcessGroup, join_process_group, read_rendezvous
from datalens_service.mechanisms import DistributedGradients, TopAgg
from datalens_service.mechanisms.private_shards import TeacherVault
from datalens_service.models.teachers.partitions import PARTITIONS, partition_teachers
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

from . import rank_processes
from .rank_processes import SCHEMA, Before, ends, lead, share, silent, spec_of, together, upload, written

VARIANTS = {
    "topagg": {},
    "class-pure klevel": {"shards": "class_pure", "votes": "klevel", "levels": 8},
    "sketch, cosines": {
        "votes": "count_sketch", "sketch_columns": 16, "vote_basis": "dct", "vote_dimensions": 16, "steps": 2
    },
    "kernel, students apart": {
        "teacher": "kernel", "student": "class_networks", "shards": "class_pure", "vote_basis": "dct",
        "vote_dimensions": 16, "stochastic": False,
    },
    "conv after a warm start": {"teacher": "conv", "warm_start": "moments", "steps": 1, "teacher_warmup_steps": 1},
}  # fmt: skip


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_all_ranks_together_are_one(changes: dict, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = spec_of(**changes)
    assert ends(together(tmp_path, count, spec)) == [0] * count
    draws: list[int] = []
    monkeypatch.setattr(NoiseSource, "discrete_gaussian", silent(draws))
    account = MemoryAccount(spec.limit_units(SCHEMA))
    alone, found = lead(spec, SINGLE_PROCESS, account), written(tmp_path)
    steps = spec.plan(SCHEMA).steps
    assert sorted(found["sums"]) == sorted(account._stored) == list(range(steps))
    for step, sums in account._stored.items():
        np.testing.assert_array_equal(found["sums"][step], sums)
    assert any(sums.any() for sums in account._stored.values())
    assert found["tensors"].keys() == alone.keys()
    for name, value in alone.items():
        assert found["tensors"][name].tobytes() == value.tobytes(), name
    assert found["charges"] == account.charges
    assert found["draws"] == draws
    assert len(draws) == steps


def test_ranks_that_assist_neither_charge_nor_draw(tmp_path: Path):
    assert ends(together(tmp_path, 3, spec_of())) == [0, 0, 0]
    assert len(written(tmp_path, 0)["draws"]) == len(written(tmp_path, 0)["charges"]) == 3
    for rank in (1, 2):
        assert written(tmp_path, rank)["draws"] == written(tmp_path, rank)["charges"] == []


def dies(rank: int) -> Before:
    """The rank is killed when it trains for its second vote."""

    def before(ranks: ProcessGroup) -> None:
        learn = TeacherVault.learn

        def killed(self: TeacherVault, *arguments: object) -> None:
            if self.steps >= 2 and ranks.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)
            learn(self, *arguments)

        TeacherVault.learn = killed

    return before


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_killed_rank_ends_all(lost: int, tmp_path: Path):
    codes = ends(together(tmp_path, 3, spec_of(), dies(lost)))
    assert codes == [-signal.SIGKILL if rank == lost else 1 for rank in range(3)]
    for rank in {0, 1, 2} - {lost}:
        assert written(tmp_path, rank)["error"] == "RankLost"
    if lost:
        found = written(tmp_path)
        assert len(found["charges"]) == len(found["draws"]) == len(found["sums"]) == 1, "the second vote cost nothing"


def test_a_silent_rank_is_not_waited_for(tmp_path: Path):
    def before(ranks: ProcessGroup) -> None:
        if ranks.rank == 1:
            signal.pause()
        # They have met by now, which may take longer on a busy machine.
        set_timeout(timedelta(seconds=2))

    processes = together(tmp_path, 2, spec_of(), before)
    processes[0].join(280)
    processes[1].kill()
    assert ends(processes) == [1, -signal.SIGKILL]
    assert written(tmp_path)["error"] == "RankLost"
    assert written(tmp_path)["charges"] == written(tmp_path)["draws"] == []


def test_ranks_with_other_records_are_refused(tmp_path: Path):
    def before(ranks: ProcessGroup) -> None:
        if ranks.rank == 1:
            rank_processes.upload = lambda: upload(seed=1)

    assert ends(together(tmp_path, 2, spec_of(), before)) == [1, 1]
    assert written(tmp_path, 1)["error"] == "InvalidInput"
    assert written(tmp_path, 0)["error"] == "RankLost"
    assert written(tmp_path, 0)["charges"] == []


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with join_process_group(1, read_rendezvous()) as ranks:
        assert ranks is SINGLE_PROCESS
    assert (SINGLE_PROCESS.rank, SINGLE_PROCESS.world_size) == (0, 1)


@pytest.mark.parametrize(("teachers", "groups"), [(1, 1), (100, 1), (4000, 1), (4000, 10), (4010, 10), (130, 2)])
def test_partitions_cover_all_teachers_and_stay_in_their_group(teachers: int, groups: int):
    partitions = partition_teachers(teachers, groups)
    assert [teacher for partition in partitions for teacher in partition] == list(range(teachers))
    own = teachers // groups
    assert all(partition.start // own == (partition.stop - 1) // own for partition in partitions)
    assert len(partitions) <= PARTITIONS + groups
    for ranks in range(1, len(partitions) + 1):
        local = [share(rank, ranks, partitions) for rank in range(ranks)]
        assert [partition for share in local for partition in share] == partitions
        assert all(local)
    with pytest.raises(InvalidSpec, match="at most"):
        share(0, len(partitions) + 1, partitions)


def test_too_many_ranks_are_a_sentence(tmp_path: Path):
    assert ends(together(tmp_path, 3, spec_of(num_teachers=128))) == [1, 1, 1]
    assert [written(tmp_path, rank)["error"] for rank in range(3)] == ["InvalidSpec"] * 3


def test_more_teachers_than_declared_are_refused_over_all_ranks():
    mechanism = TopAgg(
        num_teachers=4, images=2, dimensions=6, clip=1.0, stochastic=False, threshold="none", noise_stddev=5000, top_k=2
    )
    here = [torch.ones(3, 2, 6)]
    mechanism.exact_sum(DistributedGradients(here, 0, lambda sums: sums + np.append(np.zeros(12, dtype=np.int64), 1)))
    with pytest.raises(ContributionFailed) as raised:
        mechanism.exact_sum(DistributedGradients(here, 0, lambda sums: 2 * sums))
    assert raised.value.__notes__ == ["More than 4 teachers voted in one release."]
