"""`datalens train` under torchrun: a lost rank ends the run, which goes on with any number of ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cli.embedded_runs import held, job_and_spends, votes
from cli.service import PATIENCE

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
VOTES = votes(teachers=128, batch=2, steps=40)


def test_a_lost_rank_ends_the_run_and_nothing_is_spent_twice(datalens_json: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", images=rng.integers(0, 256, (150, 8, 8), dtype=np.uint8), labels=np.arange(150) % 2)
    command = ["train", "--confirm-classes", "--data", str(tmp_path / "d.npz"), *VOTES]
    with held([*TORCHRUN, "-m", "datalens_service.cli", *command], tmp_path, 2) as torchrun:
        [second] = [one for one in psutil.Process(torchrun.pid).children() if one.environ().get("RANK") == "1"]
        second.kill()
        assert torchrun.wait(PATIENCE) == 1
    job, _ = job_and_spends()
    assert not job.state.terminal
    before = job.charged_units
    outcome = datalens_json(*command)
    assert outcome["state"] == "succeeded"
    job, spends = job_and_spends()
    steps = [entry.step for entry in spends]
    assert 0 < before < job.charged_units
    assert len(steps) - len(set(steps)) <= 1, "only a step that was charged and not stored is charged again"
