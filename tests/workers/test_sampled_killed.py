"""A sampled job that is killed again and again pays for its block once and draws no more than was paid for."""

from __future__ import annotations

from typing import Any

from datalens_service.methods.sampled_gradients import SampledRun
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.proof_verification import verify
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import Deployment
from workers.process.job_process import Exit

STEPS, BATCH = 120, 30
SAMPLED: dict[str, Any] = {
    "method": {"name": "dp_sgd", "architecture": "mlp", "sampling": "poisson", "batch": BATCH, "steps": STEPS},
    "epsilon": 1.0,
    "evaluation": {"enabled": False},
}


def test_a_killed_sampled_job_goes_on_and_is_charged_once(local: Deployment) -> None:
    job = local.submit(SAMPLED)
    for steps in (3, 20):
        killed = local.start_module("workers.run_job", job.id)
        local.wait_for_steps(job, steps)
        killed.kill()
        killed.wait()
        local.lose_lease(job)

    assert local.start_module("workers.run_job", job.id).wait() == Exit.ENDED

    assert local.job(job).state == JobState.SUCCEEDED
    charges = [entry for entry in local.entries(job) if entry.kind == EntryKind.CHARGE]
    assert [entry.step for entry in charges if entry.units or entry.slack] == [0]
    assert STEPS <= len(charges) <= STEPS + 2
    assert len(local.stored_steps(job)) <= 50, "the state takes the place of sums"
    local.assert_balanced(job)
    files = ArtifactStore(local.database, local.folder)
    verdict = verify(files.releasable(job.id, "privacy.json").path.read_bytes())
    assert verdict.holds, verdict.contradiction
    assert SampledRun(10 * BATCH, BATCH, STEPS, 0.05).draws == STEPS + 2
