"""A job that keeps its iterates is killed, loses none of them, and proves the statistics that it released."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from datalens_service.base.signatures import SigningKey
from datalens_service.jobs.failures import Exit
from datalens_service.methods.descent.iterates import read_iterates
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.proof.proof_verification import verify
from datalens_service.report import document
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import aggregates
from deployments.deployment import Deployment

STEPS = 60
REQUEST: dict[str, Any] = {
    "method": {
        "name": "dp_sgd", "architecture": "linear", "sampling": "poisson", "batch": 30, "steps": STEPS,
        "accounting": "per_instance", "histogram_noise": 100, "histogram_every": 20,
    },
    "epsilon": 1.0,
    "evaluation": {"enabled": False},
}  # fmt: skip
Json = dict[str, Any]


def kept_rows(local: Deployment, job_id: str) -> np.ndarray:
    with local.database.session() as session:
        blocks = aggregates.read_iterates(session, job_id)
    return np.concatenate(blocks) if blocks else np.zeros((0, 0))


def test_a_killed_job_loses_no_iterate_and_its_statistics_are_verified(local: Deployment) -> None:
    job = local.submit(REQUEST)
    with local.held(50, after="advance"):
        killed = local.start_job(job.id)
        local.wait(lambda: local.first_kept_step(job) >= 50)
        killed.kill()
        killed.wait()
    before = kept_rows(local, job.id)
    assert len(before) == 50
    local.lose_lease(job)
    assert local.start_job(job.id).wait() == Exit.ENDED
    assert local.job(job).state == JobState.SUCCEEDED, local.job(job).error

    values, description = read_iterates(local.artifacts.releasable(job.id, "iterates.safetensors").path)
    np.testing.assert_array_equal(values[: len(before)], before)
    assert len(np.unique(values, axis=0)) == len(values) == STEPS
    assert kept_rows(local, job.id).size == 0, "they are in the file now"
    assert description["epsilon"] <= 1.0
    charges = [entry for entry in local.entries(job) if entry.kind == EntryKind.CHARGE]
    assert [entry.step for entry in charges if entry.ledger_units] == [0, STEPS]
    assert charges[-1].label == "individual.histogram"
    local.assert_balanced(job)

    card = local.read_json(job, "card.json")
    figures = card["privacy"]["individual"]
    assert 0 <= figures["mean"] <= figures["largest_epsilon"] == 1.0
    for name in ("report.json", "report-releasable.json"):
        content = local.read(job, name)
        document.check(content)
        shown = json.loads(content)["individual_epsilon"]
        assert {name: shown[name] for name in figures} == figures
        assert "guarantee" in shown["meaning"]
    assert "Individual ε" in local.read(job, "report-releasable.html").decode()
    check_proofs(local, job)


def check_proofs(local: Deployment, job: Job) -> None:
    """Both hold, and neither does once a figure was changed."""
    for name in ("privacy.json", "account-proof.json"):
        content = local.read_json(job, name)
        verdict = verify(json.dumps(content).encode())
        assert verdict.holds, verdict.contradiction
        assert any("Mean individual ε" in line.finding for line in verdict.lines)
        for title, tamper in TAMPERED.items():
            changed = deepcopy(content)
            tamper(changed["card"]["privacy"]["individual"], changed)
            refused = verify(json.dumps(SigningKey(b"of a forger").sign(changed)).encode())
            assert (refused.contradiction or "").startswith("card: "), title


def unpaid(_figures: Json, content: Json) -> None:
    content["card"]["privacy"]["mechanisms"].pop()
    content["plan"].pop()


TAMPERED: dict[str, Callable[[Json, Json], object]] = {
    "a smaller mean": lambda figures, _: figures.update(mean=figures["mean"] - 0.01),
    "a smaller quantile": lambda figures, _: figures["quantiles"][-1].update(epsilon=0.0),
    "one quantile less": lambda figures, _: figures["quantiles"].pop(),
    "other counts": lambda figures, _: figures["noisy_counts"].insert(0, figures["noisy_counts"].pop(0) + 5000),
    "fewer bins": lambda figures, _: figures["noisy_counts"].pop(),
    "a wider range": lambda figures, _: figures.update(largest_epsilon=2.0),
    "no figures": lambda _, content: content["card"]["privacy"].pop("individual"),
    "figures that nobody paid for": unpaid,
}
