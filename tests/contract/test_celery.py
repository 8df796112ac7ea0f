"""The contract on the production path: PostgreSQL, Redis and Celery workers."""

from collections.abc import Iterator

import pytest

from chaos.load import press
from deployments.deployment import QUICK, VOTES
from deployments.stack import CeleryStack

from .contract import Contract, succeeded

pytestmark = [pytest.mark.redis, pytest.mark.postgres]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CeleryStack]:
    made = CeleryStack(tmp_path_factory.mktemp("celery"))
    try:
        made.serve()
        yield made
    finally:
        made.close()


class TestCelery(Contract):
    """On PostgreSQL and Redis."""

    def test_many_clients_and_streams_on_two_apis_lose_no_request_and_no_job(self, stack: CeleryStack) -> None:
        figures = press(stack, seconds=5)
        assert figures["passed"], figures
        assert figures["jobs"]

    def test_killed_broker_loses_no_job(self, stack: CeleryStack) -> None:
        with stack.held(1):
            running = stack.order(VOTES)
            stack.wait_for_steps(running, 2)
            waiting = stack.order(QUICK)
            stack.redis.kill()
            unsent = stack.order(QUICK)
            assert stack.ready(), "jobs are taken without the broker"
        stack.redis.serve()
        stack.wait(stack.ready)
        assert succeeded(stack, running).lease_token == 1
        for job in (waiting, unsent):
            succeeded(stack, job)

    def test_killed_database_loses_no_job(self, stack: CeleryStack) -> None:
        with stack.held(1):
            job = stack.order(VOTES)
            stack.wait_for_steps(job, 2)
            before = stack.stored_steps(job)
            stack.postgresql.kill()
        assert not stack.ready()
        stack.postgresql.serve()
        stack.wait(stack.ready)
        succeeded(stack, job)
        assert before.items() <= stack.stored_steps(job).items()
