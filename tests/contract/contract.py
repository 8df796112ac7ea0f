"""What the service promises on every stack: the same scenarios, with real processes, through the API.

All scenarios of one stack share it, as the jobs of an installation do: each leaves it running.
"""

import json

import httpx2
import pytest

from datalens_service.proof.proof_verification import verify
from datalens_service.store.jobs.jobs import Job, JobState
from deployments.deployment import PATIENCE, QUICK, VOTES
from deployments.stack import Stack

LONG = {**VOTES, "method": {**VOTES["method"], "steps": 5000, "top_k": 2}}
"""Never ends by itself while a test runs."""


@pytest.mark.timeout(1200)
class Contract:
    """Every stack passes all of it; `stack` is a fixture of the subclass's module."""

    def test_submitted_job_succeeds_and_its_cost_can_be_recomputed(self, stack: Stack) -> None:
        job = stack.order(QUICK)
        assert succeeded(stack, job).lease_token == 1
        with stack.client() as client:
            bundle = httpx2.get(f"{stack.url}/v1/jobs/{job.id}/bundle", headers=stack.headers, timeout=60).content
            assert client.get_job(job.id).state == "succeeded"
        assert verify(bundle).holds

    def test_cancel_in_the_queue_and_cancel_running(self, stack: Stack) -> None:
        running = stack.order(LONG)
        stack.wait_for_steps(running, 2)
        waiting = stack.order(QUICK)
        with stack.client() as client:
            assert client.cancel(waiting.id).state == "cancelled"
            client.cancel(running.id)
        ended = stack.wait_for_end(running)
        assert ended.state == JobState.CANCELLED
        assert 0 < ended.charged_units < running.reserved_units
        assert (stack.job(waiting).charged_units, stack.job(waiting).lease_token) == (0, 0)
        for job in (running, waiting):
            stack.assert_balanced(job)

    def test_paused_job_waits_and_goes_on_where_it_was(self, stack: Stack) -> None:
        with stack.held(1):
            job = stack.order(VOTES)
            stack.wait_for_steps(job, 2)
            asked(stack, job, "pause")
        stack.wait(lambda: stack.job(job).state == JobState.PAUSED)
        before, held = stack.stored_steps(job), stack.job(job)
        kept = stack.folder / "private" / job.id
        assert [folder.name for folder in kept.iterdir()] == [str(held.lease_token)]
        assert held.charged_units + held.reserved_units == job.reserved_units
        # Whatever waits behind it is not held up.
        succeeded(stack, stack.order(QUICK))
        assert (stack.job(job).state, stack.stored_steps(job)) == (JobState.PAUSED, before)
        asked(stack, job, "resume")
        assert succeeded(stack, job).lease_token == 2
        assert before.items() <= stack.stored_steps(job).items()
        # A pause falls between two steps: nothing was charged twice.
        assert len(stack.stored_steps(job)) == VOTES["method"]["steps"]
        assert stack.job(job).charged_units == job.reserved_units

    def test_killed_job_process_is_replaced_at_once_and_nothing_is_drawn_twice(self, stack: Stack) -> None:
        with stack.held(4, after="charge"):
            job = stack.order(VOTES)
            stack.wait(lambda: 4 in stack.charged_steps(job))
            before = stack.stored_steps(job)
            stack.kill_job_process(job)
            stack.wait(lambda: stack.job(job).lease_token == 2)
        assert succeeded(stack, job).lease_token == 2
        after = stack.stored_steps(job)
        assert before.items() <= after.items()
        # Everything that was planned is charged. One step was lost: charged, and its sum not stored.
        assert stack.job(job).charged_units == job.reserved_units
        assert len(after) == VOTES["method"]["steps"] - 1

    def test_workers_come_and_go_and_lose_no_job(self, stack: Stack) -> None:
        with stack.held(1):
            job = stack.order(VOTES)
            stack.wait_for_steps(job, 2)
            # One that is asked to end gives its job back, which is not held against the job.
            first = stack.workers.pop()
            first.terminate()
            assert first.wait(PATIENCE) == 0
            assert (stack.job(job).state, stack.job(job).attempts) == (JobState.QUEUED, 0)
            stack.start_worker()
            stack.wait(lambda: stack.latest_token(job) == 2)
            stack.kill_worker(stack.workers[0])
            stack.kill_job_process(job)
        before = stack.stored_steps(job)
        stack.lose_lease(job)
        stack.start_worker()
        assert succeeded(stack, job).lease_token == 3
        assert before.items() <= stack.stored_steps(job).items()

    def test_killed_api_loses_no_job_and_knows_its_keys(self, stack: Stack) -> None:
        dataset_id = stack.new_dataset()
        with stack.held(0):
            job = stack.order(VOTES, dataset_id, key=f"once-{dataset_id}")
            stack.wait_for_steps(job, 1)
            stack.kill_api()
            assert not stack.ready()
        stack.start_api()
        stack.wait(stack.ready)
        assert stack.order(VOTES, dataset_id, key=f"once-{dataset_id}").id == job.id
        assert succeeded(stack, job).lease_token == 1

    def test_doubled_delivery_runs_a_job_once(self, stack: Stack) -> None:
        with stack.held(1):
            job = stack.order(VOTES)
            for _ in range(3):
                stack.deliver(job.id)
        assert succeeded(stack, job).lease_token == 1
        stack.deliver(job.id)

    def test_two_supervisors_run_each_job_once(self, stack: Stack) -> None:
        started = stack.log.read_text().count(stack.STARTED)
        second = stack.start_worker()
        stack.wait(lambda: stack.log.read_text().count(stack.STARTED) > started)
        submitted = [stack.order(QUICK) for _ in range(2)]
        for job in submitted:
            assert succeeded(stack, job).lease_token == 1
        second.terminate()
        assert second.wait(PATIENCE) == 0
        stack.workers.remove(second)

    def test_logs_and_metrics_hold_nothing_private(self, stack: Stack) -> None:
        metrics = httpx2.get(f"{stack.url}/metrics", headers=stack.headers, timeout=60).text
        assert "datalens_jobs" in metrics
        stack.assert_nothing_private_in(metrics)
        logged = stack.log.read_text()
        stack.assert_nothing_private_in(logged)
        lines = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
        assert any("request_id" in line for line in lines)
        assert any(str(line.get("job_id", "")).startswith("job_") for line in lines)


def asked(stack: Stack, job: Job, verb: str) -> None:
    reply = httpx2.post(f"{stack.url}/v1/jobs/{job.id}:{verb}", headers=stack.headers, timeout=60)
    assert reply.is_success, reply.text


def succeeded(stack: Stack, job: Job) -> Job:
    """The job when it has ended, well and with its books in order."""
    ended = stack.wait_for_end(job)
    assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
    stack.assert_balanced(job)
    return ended
