"""Killed training goes on from what it released: no gradient, and no block of a sampled job, is paid for again."""

from typing import Any

from datalens_service.jobs.failures import Exit
from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.proof_verification import verify
from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import Deployment

STEPS, BATCH = 60, 30
SAMPLED: dict[str, Any] = {
    "method": {"name": "dp_sgd", "architecture": "mlp", "sampling": "poisson", "batch": BATCH, "steps": STEPS},
    "epsilon": 1.0,
    "evaluation": {"enabled": False},
}


def test_a_killed_sampled_job_goes_on_and_is_charged_once(local: Deployment) -> None:
    job = local.submit(SAMPLED)
    kill_behind(local, job, 2, "store")
    # A draw that was counted and not stored is made again.
    kill_behind(local, job, 20, "charge_draw")

    assert local.start_job(job.id).wait() == Exit.ENDED

    assert local.job(job).state == JobState.SUCCEEDED
    charges = [entry for entry in local.entries(job) if entry.kind == EntryKind.CHARGE]
    assert [entry.step for entry in charges if entry.ledger_units or entry.slack] == [0]
    assert len(charges) == STEPS + 1
    assert [entry.step for entry in charges].count(20) == 2
    assert len(local.stored_steps(job)) <= 50, "the state takes the place of sums"
    local.assert_balanced(job)
    verdict = verify(local.read(job, "privacy.json"))
    assert verdict.holds, verdict.contradiction
    assert SampledRun(10 * BATCH, BATCH, STEPS, 0.05).draws == STEPS + 2


def kill_behind(local: Deployment, job: Job, step: int, method: str) -> None:
    """Kill a process of the job as soon as its account has answered `method` at `step`."""
    with local.held(step, after=method):
        killed = local.start_job(job.id)
        local.wait(
            lambda: step in local.charged_steps(job) and len(local.stored_steps(job)) == step + (method == "store")
        )
        killed.kill()
        killed.wait()
    local.lose_lease(job)


GRADIENTS: dict[str, Any] = {
    "method": {"name": "dp_sgd", "architecture": "mlp", "steps": 20},
    "epsilon": 4.0,
    "evaluation": {"enabled": False},
}


def test_a_killed_classifier_job_goes_on_without_a_second_charge(local: Deployment) -> None:
    job = local.submit(GRADIENTS)
    kill_behind(local, job, 10, "charge")
    before = local.stored_steps(job)
    assert sorted(before) == list(range(10))

    assert local.start_job(job.id).wait() == Exit.ENDED

    assert local.job(job).state == JobState.SUCCEEDED
    after = local.stored_steps(job)
    assert {step: after[step] for step in before} == before
    charged = local.charged_steps(job)
    # The one gradient whose noise may have been drawn, and was not stored, is charged again, no other.
    assert {step for step in charged if charged.count(step) > 1} == {10}
    assert len(charged) == len(set(charged)) + 1
    local.assert_balanced(job)
    assert verify(local.read(job, "privacy.json")).holds
    assert Classifier.load(local.artifacts.releasable(job.id, "classifier.safetensors").path).schema.num_classes == 2
