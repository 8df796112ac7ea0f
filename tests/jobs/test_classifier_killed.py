"""A classifier job that is killed in the middle goes on from its released gradients and pays for none of them again."""

from typing import Any

from datalens_service.jobs.failures import Exit
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.proof.proof_verification import verify
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import Deployment

GRADIENTS: dict[str, Any] = {
    "method": {"name": "dp_sgd", "architecture": "mlp", "steps": 20},
    "epsilon": 4.0,
    "evaluation": {"enabled": False},
}


def test_a_killed_classifier_job_goes_on_without_a_second_charge(local: Deployment) -> None:
    job = local.submit(GRADIENTS)
    with local.held(10, after="charge"):
        killed = local.start_job(job.id)
        local.wait(lambda: 10 in local.charged_steps(job))
        killed.kill()
        killed.wait()
    before = local.stored_steps(job)
    assert sorted(before) == list(range(10))
    local.lose_lease(job)

    assert local.start_job(job.id).wait() == Exit.ENDED

    assert local.job(job).state == JobState.SUCCEEDED
    after = local.stored_steps(job)
    assert {step: after[step] for step in before} == before
    charged = local.charged_steps(job)
    # The one gradient whose noise may have been drawn, and was not stored, is charged again, no other.
    assert {step for step in charged if charged.count(step) > 1} == {10}
    assert len(charged) == len(set(charged)) + 1
    local.assert_balanced(job)
    files = ArtifactStore(local.database, local.folder)
    assert verify(files.releasable(job.id, "privacy.json").path.read_bytes()).holds
    assert Classifier.load(files.releasable(job.id, "classifier.safetensors").path).schema.num_classes == 2
