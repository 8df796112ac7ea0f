"""A job of the service over several ranks: the result of one, one charge per draw, and no process that is left over."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file
from structlog.testing import capture_logs

from datalens_service.base.process_group import (
    SINGLE_PROCESS,
    ProcessGroup,
    Rendezvous,
    TorchProcessGroup,
    read_rendezvous,
)
from datalens_service.base.settings import Settings
from datalens_service.jobs.failures import Exit
from datalens_service.jobs.ranks import MetRanks, SharedWork
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.workers.process import ranks
from datalens_service.workers.process.ranks import StartedRanks
from datalens_service.workers.run_job import _run_as_leader
from deployments.deployment import MOMENTS, PATIENCE, VOTES, Deployment, Process, lamps
from ports import free_port

SHARED: dict[str, Any] = {**VOTES, "method": {**VOTES["method"], "num_teachers": 128}, "seed": 3}
SHORT: dict[str, Any] = {**SHARED, "method": {**SHARED["method"], "steps": 3}}
FOLLOWER = "datalens_service.workers.follow_rank"


def followers_of(job: Job) -> list[int]:
    """Processes that are alive: the command line of one that has ended and waits to be collected is empty."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if {FOLLOWER, job.id} <= {*(one.info["cmdline"] or ())}]


def generator(local: Deployment, job: Job) -> dict[str, bytes]:
    path = local.artifacts.get(job.id, "generator.safetensors").path
    return {name: values.tobytes() for name, values in load_file(path).items()}


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder named as people name theirs."""
    folder = tmp_path / "Bücher und Bilder"
    folder.mkdir()
    return folder


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise in this process, which is rank 0."""
    monkeypatch.setattr(NoiseSource, "discrete_gaussian", lambda _self, shape, _stddev: np.zeros(shape, dtype=np.int64))
    monkeypatch.setattr("datalens_service.workers.run_job.announce", lambda _lease: None)
    for engine in ("GLOO", "NCCL"):
        monkeypatch.setenv(f"{engine}_SOCKET_IFNAME", ranks.LOOPBACK)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")


def run(local: Deployment, ranks: int, rendezvous: Rendezvous | None = None) -> tuple[list[int], int]:
    """Run the job that waits in this process; how many ranks it said that it has, and how often they summed."""
    settings = local.settings.model_copy(update={"ranks": ranks, "lease_seconds": 600})
    summed: list[int] = []
    all_reduce = TorchProcessGroup.all_reduce
    with capture_logs() as lines, pytest.MonkeyPatch.context() as patch:

        def count(group: TorchProcessGroup, sums: np.ndarray) -> np.ndarray:
            # One number alone only says that a rank is there.
            summed.extend([1] * (sums.size > 1))
            return all_reduce(group, sums)

        patch.setattr(TorchProcessGroup, "all_reduce", count)
        assert _run_as_leader(settings, None, threading.Event(), None, rendezvous) == Exit.ENDED
    return [line["ranks"] for line in lines if line["event"] == "ranks of the job"], len(summed)


@pytest.mark.usefixtures("silent")
def test_a_job_over_two_ranks_is_a_job_over_one(local: Deployment) -> None:
    check_ranks(local, local.upload(lamps()))


def check_ranks(local: Deployment, dataset: StoredDataset, meanwhile: Callable[[], None] = lambda: None) -> None:
    """A job on one rank, and once something was done two on two: rank 0 starts the other, or meets it."""
    alone = local.submit(SHORT, dataset)
    assert run(local, 1) == ([], 0)
    meanwhile()
    started = local.submit(SHORT, dataset)
    assert run(local, 2) == ([2], 3)
    met = local.submit(SHORT, dataset)
    rendezvous, other = start_other_rank(local)
    assert run(local, 1, rendezvous) == ([2], 3)
    assert other.wait(PATIENCE) == Exit.ENDED
    assert len(local.stored_steps(alone)) == 3
    for shared in (started, met):
        assert local.job(shared).state == JobState.SUCCEEDED
        assert local.stored_steps(shared) == local.stored_steps(alone)
        assert generator(local, shared) == generator(local, alone)
        assert local.job(shared).charged_units == local.job(alone).charged_units
        assert len(local.entries(shared)) == len(local.entries(alone))
    local.verified(alone)


def start_other_rank(local: Deployment) -> tuple[Rendezvous, Process]:
    """Rank 1, as a batch system starts it; and where rank 0, which is this process, meets it."""
    address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    local.changes |= {"RANK": "1", **address}
    os.environ.update(address, RANK="0")
    rendezvous = read_rendezvous()
    assert rendezvous is not None
    return rendezvous, local.start_warm("datalens_service.workers.run_job")


def test_killed_ranks_end_the_job_process_and_nothing_is_charged_twice(local: Deployment) -> None:
    local.changes |= {"DATALENS_LEASE_SECONDS": "3600", "DATALENS_RANKS": "2"}
    job = local.submit(SHARED)
    with local.held(4):
        local.start_warm("datalens_service.workers.process.supervisor")
        local.wait_for_steps(job, 5)
        [follower] = followers_of(job)
        os.kill(follower, signal.SIGKILL)
    with local.held(5):
        local.wait(lambda: local.latest_token(job) == 2)
        [follower], before = followers_of(job), local.stored_steps(job)
        charges = local.charged_steps(job)
        assert len(charges) == len(set(charges)), "the death of a rank is seen before a charge"

        os.kill(local.worker_pid(job), signal.SIGKILL)
        local.wait(lambda: follower not in followers_of(job))
    assert before.items() <= local.stored_steps(job).items(), "a stored sum was drawn again"
    local.verified(job)


def work(request: dict[str, Any], folder: Path) -> SharedWork:
    spec = TrainingSpec.model_validate(request)
    return SharedWork("job_x", spec.method.max_ranks(lamps().schema), "records", folder, folder)


@pytest.mark.parametrize("request_", [MOMENTS, VOTES], ids=["no teachers", "few teachers"])
def test_what_cannot_be_shared_runs_on_one_rank_and_says_so(request_: dict[str, Any], tmp_path: Path) -> None:
    with (
        capture_logs() as lines,
        StartedRanks(Settings(data_dir=tmp_path, ranks=4)).share(work(request_, tmp_path)) as group,
    ):
        assert group is SINGLE_PROCESS
    [line] = lines
    assert (line["event"], line["ranks"], line["allowed"]) == ("ranks of the job", 1, 4)


def test_processes_that_are_too_many_are_sent_away_before_the_job(tmp_path: Path) -> None:
    class Three(ProcessGroup):
        world_size = 3
        dismissed = False

        def shutdown(self) -> None:
            self.dismissed = True

    three = Three()
    with capture_logs() as lines, MetRanks(three).share(work(SHARED, tmp_path)) as group:
        assert group is SINGLE_PROCESS
        assert three.dismissed
    assert [line["max_ranks"] for line in lines] == [2]


def test_a_rank_that_ends_before_the_first_sum_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(ranks, "_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(ranks.os, "_exit", lambda code: ends.set() if code == Exit.CRASHED else None)
    # No such argument: it ends as soon as it reads its command line.
    with ranks.Followers("--unknown", 2, tmp_path / "meeting", 60):
        assert ends.wait(PATIENCE)


def test_a_rank_ends_with_rank_0_wherever_it_waits(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "datalens_service.workers.follow_rank",
        "job_x",
        "--rank",
        "1",
        "--world-size",
        "2",
    ]
    command += ["--meeting-point", str(tmp_path / "nobody"), "--timeout-seconds", "600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == Exit.CRASHED
        assert process.stderr.read() == b""


def test_other_ranks_know_no_address_of_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_DATABASE_URL", "postgresql://x")
    monkeypatch.setenv("DATALENS_LOG_LEVEL", "debug")
    assert {name for name in ranks._environment() if name.startswith("DATALENS")} == {"DATALENS_LOG_LEVEL"}


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", None])
def test_a_process_is_a_rank_if_all_is_said_about_it(missing: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.ranks", "MASTER_PORT": "29400"}.items():
        monkeypatch.setenv(name, "" if name == missing else value)
    assert read_rendezvous() == (None if missing else Rendezvous(1, 3, 0, "env://"))
