"""The contract on one machine: SQLite and the supervisor."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import make_url

from deployments.deployment import VOTES
from deployments.stack import LocalStack

from .contract import Contract, succeeded


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    made = LocalStack(tmp_path_factory.mktemp("local"))
    # No lease runs out by itself: whatever replaces a process noticed its end.
    made.changes["DATALENS_LEASE_SECONDS"] = "3600"
    try:
        made.serve()
        yield made
    finally:
        made.close()


class TestLocal(Contract):
    """On SQLite."""

    def test_database_that_is_locked_for_a_while_costs_time_only(self, stack: LocalStack) -> None:
        file = make_url(stack.database.url).database
        assert file is not None
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as other:
            with stack.held(1):
                job = stack.order(VOTES)
                stack.wait_for_steps(job, 2)
                other.execute("BEGIN IMMEDIATE")
            before = stack.stored_steps(job)
            stack.wait(stack.ready)  # Reading goes on.
            assert stack.stored_steps(job) == before
            other.execute("ROLLBACK")
        succeeded(stack, job)
