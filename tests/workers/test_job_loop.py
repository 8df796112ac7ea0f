"""The loop that gives jobs to processes, without processes; and what says that it turns."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import structlog

from datalens_service.base.clock import utc_now
from datalens_service.base.errors import InsufficientStorage, StoreUnavailable, WorkerUnavailable
from datalens_service.base.gpu import GpuMemory
from datalens_service.base.settings import Settings
from datalens_service.jobs import memory
from datalens_service.jobs.failures import Exit
from datalens_service.services.waiting import explain_job
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.attendance import read_attendance
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.workers.process import health, job_loop, job_process, recover_jobs
from datalens_service.workers.process.health import HealthFile
from datalens_service.workers.process.job_loop import JobLoop
from datalens_service.workers.process.job_process import JobProcess
from datalens_service.workers.process.recover_jobs import Recovery
from deployments.deployment import MOMENTS, PATIENCE, Deployment, lamps

TURN_SECONDS = 0.05


@pytest.fixture(autouse=True)
def health_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where health files are, of this test alone."""
    folder = tmp_path / "health"
    monkeypatch.setattr(health, "_folder", lambda: folder)
    return folder


class Forks:
    """Stands for the server: notes for which job, and when, a process is forked, which has ended at once.

    Attributes:
        end: Ends the job with the id and the lease token; the exit code of its process.
    """

    def __init__(self, database: Database) -> None:
        self.started: list[str] = []
        self.moments: list[float] = []
        self.end = self.succeed
        self.has_gpu: bool | None = None
        self._database = database

    def ready(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to end."""

    def fork(self, arguments: list[str], *_: object) -> SimpleNamespace:
        token, job_id = int(arguments[1]), arguments[2]
        self.started.append(job_id)
        self.moments.append(time.monotonic())
        code = self.end(job_id, token)
        return SimpleNamespace(pid=1, wait=lambda *_: code)

    def succeed(self, job_id: str, token: int) -> int:
        leases.finish(self._database, Lease(job_id, token, "", 30, utc_now()), JobState.SUCCEEDED)
        return Exit.ENDED


@pytest.fixture
def forks(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> Forks:
    made = Forks(local.database)
    monkeypatch.setattr(job_loop, "ForkServer", lambda: made)
    return made


@pytest.fixture
def start(local: Deployment) -> Iterator[Callable[..., JobLoop]]:
    """Start a loop in a thread; it is stopped when the test ends."""
    stopping, threads = threading.Event(), []

    def begin(kind: type[JobLoop] = JobLoop, turn_seconds: float = TURN_SECONDS, **changes: str) -> JobLoop:
        settings: Settings = local.settings
        loop = kind(local.database, settings, stopping, slots=1, turn_seconds=turn_seconds, **changes)
        threads.append(threading.Thread(target=loop.run))
        threads[-1].start()
        return loop

    yield begin
    stopping.set()
    for thread in threads:
        thread.join()


def test_interrupted_job_runs_before_twelve_that_came_later(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop]
) -> None:
    submitted = [local.submit(MOMENTS, local.upload(lamps(seed))) for seed in range(13)]
    local.claim(submitted[0])
    local.lose_lease(submitted[0])
    start()
    local.wait(lambda: len(forks.started) == len(submitted))
    assert forks.started == [job.id for job in submitted]


def test_loop_is_woken_before_its_next_turn(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = threading.Event()
    monkeypatch.setattr(JobLoop, "turned", lambda _: turned.set())
    loop = start(turn_seconds=600)
    assert turned.wait(PATIENCE)
    local.submit(MOMENTS)
    loop.wake()
    local.wait(lambda: bool(forks.started))
    # The end of a process wakes it as well.
    local.submit(MOMENTS, local.upload(lamps(1)))
    loop.wake()
    local.wait(lambda: len(forks.started) == 2)
    loop._stopping.set()
    loop.wake()


def test_worker_whose_processes_cannot_start_fails_no_job_and_waits_longer_each_time(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop]
) -> None:
    def cannot_start(*_: object) -> NoReturn:
        raise WorkerUnavailable("The process that starts jobs was lost.")

    forks.end = cannot_start
    job = local.submit(MOMENTS, max_attempts=2)
    start()
    local.wait(lambda: len(forks.started) == 4)
    gaps = [after - before for before, after in zip(forks.moments, forks.moments[1:], strict=False)]
    # A busy machine makes them longer, never shorter.
    assert all(gap >= pause for gap, pause in zip(gaps, (0.5, 1, 2), strict=True))
    # The fourth is given back a moment after it was started.
    local.wait(lambda: (local.job(job).state, local.job(job).attempts) == (JobState.QUEUED, 0))


def test_worker_without_room_leaves_the_job_to_others(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for room less and less often, and does not say each time that there is none."""
    looked: list[float] = []

    def full(_: Settings) -> None:
        looked.append(time.monotonic())
        raise InsufficientStorage("The disk of data_dir is full.")

    monkeypatch.setattr(job_loop, "check_disks", full)
    job = local.submit(MOMENTS)
    start()
    with structlog.testing.capture_logs() as logged:
        local.wait(lambda: len(looked) > 2)
    assert looked[1] - looked[0] >= 0.5
    assert looked[2] - looked[1] >= 1
    assert sum(line["event"].startswith("database, disk") for line in logged) <= 1
    assert (local.job(job).state, local.job(job).lease_token, forks.started) == (JobState.QUEUED, 0, [])


@pytest.fixture
def gpu(forks: Forks, local: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A worker with a GPU of 80 GiB, in place of NVML's: bytes that are free there, of which the last are in force."""
    forks.has_gpu = True
    free = [80 * 2**30]
    monkeypatch.setattr(memory, "read_gpu_memory", lambda _: GpuMemory(80 * 2**30, free[-1]))
    monkeypatch.setattr(job_loop, "explain_old_driver", lambda: None)
    return free


def test_a_job_waits_while_another_program_has_the_gpu_and_says_so(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], gpu: list[int]
) -> None:
    gpu.append(2**20)
    job = local.submit(MOMENTS)
    start()
    local.wait(lambda: any(worker.trouble for worker, _ in read_attendance(local.database).workers))
    assert (local.job(job).state, local.job(job).lease_token, forks.started) == (JobState.QUEUED, 0, [])
    reason = explain_job(local.job(job), {}, read_attendance(local.database))
    # Of other programs nothing but that there are some.
    assert reason == f"No worker can start a job: {memory.TAKEN}"
    gpu.append(80 * 2**30)
    local.wait(lambda: forks.started == [job.id])
    local.wait(lambda: not any(worker.trouble for worker, _ in read_attendance(local.database).workers))


def test_a_job_for_a_processor_does_not_wait_for_a_gpu(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], gpu: list[int]
) -> None:
    gpu.append(0)
    job = local.submit({**MOMENTS, "device": "cpu"})
    start()
    local.wait(lambda: forks.started == [job.id])


def test_a_worker_with_an_old_driver_takes_no_job_and_says_so(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_loop, "explain_old_driver", lambda: "The NVIDIA driver 535.1 is too old.")
    job = local.submit(MOMENTS)
    with structlog.testing.capture_logs() as logged:
        start()
        local.wait(lambda: any(line["event"] == "no job process can start" for line in logged))
    [(worker, _)] = read_attendance(local.database).workers
    assert worker.trouble == "The NVIDIA driver 535.1 is too old."
    assert (local.job(job).state, forks.started) == (JobState.QUEUED, [])


def test_loop_turns_while_the_database_is_away_and_goes_on_when_it_is_back(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HealthFile()
    turns: list[None] = []

    class Watched(JobLoop):
        def turned(self) -> None:
            file.touch()
            turns.append(None)

    def away(*_: object) -> None:
        raise StoreUnavailable("The database did not take the operation.")

    job = local.submit(MOMENTS)
    with monkeypatch.context() as broken:
        broken.setattr(Recovery, "run", away)
        start(Watched)
        local.wait(lambda: len(turns) > 3)
        assert health.main([]) == 0
        assert forks.started == []
    local.wait(lambda: forks.started == [job.id])


@pytest.mark.parametrize(("seconds", "set_forwards"), [(None, 0.0), (45.0, 0.0), (0.0, 600.0)])
def test_a_worker_that_could_not_renew_its_lease_is_spared_for_one(
    local: Deployment, monkeypatch: pytest.MonkeyPatch, seconds: float | None, set_forwards: float
) -> None:
    """The database was away, as it refused or stood still before it answered; or its clock was set forwards."""
    clock, list_silent = [0.0], leases.list_silent

    def away(database: Database, now: datetime) -> tuple[str, ...]:
        if seconds is None:
            raise StoreUnavailable("The database does not answer.")
        clock[0] += seconds
        return list_silent(database, now=now)

    monkeypatch.setattr(recover_jobs, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = local.submit(MOMENTS)
    local.claim(job)
    recovery = Recovery(local.database, local.settings)
    recovery.run()
    with monkeypatch.context() as patch, contextlib.suppress(StoreUnavailable):
        patch.setattr(leases, "list_silent", away)
        patch.setattr(recover_jobs, "read_database_clock", lambda _: utc_now() + timedelta(seconds=set_forwards))
        recovery.run()
    local.lose_lease(job)
    recovery.run()
    clock[0] += local.settings.lease_seconds - 1
    recovery.run()
    assert local.job(job).state == JobState.RUNNING
    clock[0] += 1
    recovery.run()
    assert local.job(job).state == JobState.QUEUED


def test_lease_outlives_a_process_that_is_slow_to_start_and_returns_when_it_dies(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SimpleNamespace(kill=lambda: None, wait=lambda *_: -signal.SIGKILL)
    server = SimpleNamespace(fork=lambda *_: slow)
    clock = [0.0]
    monkeypatch.setattr(job_process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = local.submit(MOMENTS, max_attempts=1)
    lease = leases.claim_next(local.database, "worker", 600)
    assert lease is not None
    process, last = JobProcess(lease, server), lease.until  # type: ignore[arg-type]
    for _ in range(6):
        clock[0] += lease.seconds / 3
        process.hold(local.database)
        renewed = local.runs_out_at(job)
        assert renewed > last, "renewed in good time"
        process.hold(local.database)
        assert local.runs_out_at(job) == renewed, "and no more often"
        last = renewed
    process.kill()
    process.give_up(local.database, counts=False)
    assert (local.job(job).state, local.job(job).attempts) == (JobState.QUEUED, 0)


def test_a_job_that_kills_its_processes_before_they_begin_fails_and_delays_no_other(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop]
) -> None:
    """Of three starts in a row; the worker neither waits for the job nor gives it a fourth."""
    bad, good = (local.submit(MOMENTS, local.upload(lamps(seed)), max_attempts=3) for seed in (1, 2))

    def end(job_id: str, token: int) -> int:
        return -signal.SIGKILL if job_id == bad.id else forks.succeed(job_id, token)

    forks.end = end
    loop = start()
    local.wait_for_end(good)
    assert forks.started == [bad.id] * 3 + [good.id]
    ended = local.job(bad)
    assert (ended.state, ended.attempts) == (JobState.FAILED, 3)
    assert ended.error is not None
    assert ended.error["type"] == "worker-lost"
    assert loop._paused_until == 0


@pytest.mark.parametrize("code", [Exit.GIVEN_BACK, Exit.CRASHED])
def test_a_process_that_says_it_cannot_begin_here_counts_no_start_and_has_the_worker_wait(
    local: Deployment, forks: Forks, start: Callable[..., JobLoop], code: Exit
) -> None:
    job = local.submit(MOMENTS, max_attempts=2)
    forks.end = lambda *_: code
    loop = start()
    local.wait(lambda: len(forks.started) == 3)
    local.wait(lambda: (local.job(job).state, local.job(job).attempts) == (JobState.QUEUED, 0))
    assert loop._paused_until > 0


HANGS = "import sys, time\nfrom datalens_service.workers.process import health\n" + (
    "from pathlib import Path\nhealth._folder = lambda: Path(sys.argv[1])\nhealth.HealthFile()\n"
    "print('ready', flush=True)\ntime.sleep(600)\n"
)


def test_each_worker_has_a_health_file_and_one_that_hangs_is_not_hidden_by_another(health_folder: Path) -> None:
    assert health.main([]) == 1, "there is no worker"
    with subprocess.Popen([sys.executable, "-c", HANGS, str(health_folder)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        file = HealthFile()
        assert len(list(health_folder.iterdir())) == 2
        assert health.main([]) == 0

        long_ago = time.monotonic() - health.ALIVE_SECONDS - 1
        os.utime(health_folder / str(other.pid), (long_ago, long_ago))
        file.touch()
        assert health.main([]) == 1

        # A worker that has ended is none that hangs.
        other.kill()
        other.wait()
        assert health.main([]) == 0
        assert len(list(health_folder.iterdir())) == 1


def test_readiness_asks_the_database_and_no_broker(local: Deployment) -> None:
    def ask(**changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "datalens_service.workers.process.health", "--ready"]
        return subprocess.run(command, env=local.environment | changes, capture_output=True, text=True)

    assert ask().returncode == 0
    broker = {"DATALENS_EXECUTOR": "celery", "DATALENS_BROKER_URL": "redis://127.0.0.1:1/0"}
    assert ask(**broker).returncode == 0
    assert ask(DATALENS_DATABASE_URL=f"sqlite:///{local.folder}/missing/datalens.db").returncode == 1
