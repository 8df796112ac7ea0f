"""`datalens train` under torchrun: a lost rank ends the run, which goes on with any number of ranks."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.service import PATIENCE
from datalens_service.local.local_run import open_local_run
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.jobs import jobs
from datalens_service.store.ledger import account_summary
from deployments.fork_servers import start_program
from deployments.hold import Hold

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
VOTES = (
    *("--method", "datalens", "--images", "50", "--no-evaluation", "--epsilon", "2", "--out", "out"),
    *("--set", "num_teachers=128", "--set", "images_per_step=4", "--set", "top_k=8", "--set", "threshold=none"),
    *("--set", "teacher_batch=2", "--set", "teacher_warmup_steps=2", "--set", "steps=40"),
)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for a process as Linux does")
def test_a_lost_rank_ends_the_run_and_nothing_is_spent_twice(datalens_json: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", images=rng.integers(0, 256, (150, 8, 8), dtype=np.uint8), labels=np.arange(150) % 2)
    command = ["train", "--confirm-classes", "--data", str(tmp_path / "d.npz"), *VOTES]
    assert _ends_without_its_second_rank([*TORCHRUN, "-m", "datalens_service.cli", *command], tmp_path) == 1
    with open_local_run(Path("out")) as local_run:
        [job] = jobs.list_jobs(local_run.database).items
        assert not job.state.terminal
        before = job.charged_units
    outcome = datalens_json(*command)
    assert outcome["state"] == "succeeded"
    with open_local_run(Path("out")) as local_run, local_run.database.session() as session:
        [job] = jobs.list_jobs(local_run.database).items
        spends = (EntryKind.CHARGE, EntryKind.RECOVERED)
        steps = [entry.step for entry in account_summary.entries(session, job.dataset_id) if entry.kind in spends]
    assert 0 < before < job.charged_units
    assert len(steps) - len(set(steps)) <= 1, "only a step that was charged and not stored is charged again"


def _ends_without_its_second_rank(command: list[str], folder: Path) -> int:
    """Exit code of torchrun, whose rank 1 is killed after some charges."""
    hold = Hold(folder)
    environment = {**os.environ, **hold.environment, "OMP_NUM_THREADS": "1"}
    with hold.behind(2), (folder / "said").open("wb") as said:
        torchrun = start_program(command, environment, said.fileno(), said.fileno(), folder)
        log = folder / "out" / "private" / "ledger.log"
        until = time.monotonic() + PATIENCE
        while not (log.exists() and log.read_bytes().count(b"\n") >= 3):
            assert torchrun.poll() is None, "ended before it could lose a rank"
            assert time.monotonic() < until
            time.sleep(0.01)
        children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
        [second] = [int(child) for child in children if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes()]
        os.kill(second, signal.SIGKILL)
        return torchrun.wait(PATIENCE)
