"""What is asked often reads no row of the jobs of the past."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event

from datalens_service.services.overview import overview
from datalens_service.store.access.usage import count_usage
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.tables import DEFAULT_TENANT

ASKED: dict[str, Callable[[Database], Any]] = {
    "metrics": overview,
    "usage": lambda database: count_usage(database, DEFAULT_TENANT),
    "list": lambda database: jobs.list_jobs(database, JobFilter(DEFAULT_TENANT), limit=20),
    "next job": leases.next_queued,
    "lost workers": leases.list_silent,
}


@pytest.mark.parametrize("asked", ASKED)
def test_no_statement_scans_the_rows_of_all_jobs(sqlite_database: Database, asked: str) -> None:
    """An index that has all that is asked for may be read as a whole: it is a hundredth of the rows."""
    plans: list[str] = []

    def explain(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in cursor.fetchall())

    event.listen(sqlite_database._reader, "before_cursor_execute", explain)
    ASKED[asked](sqlite_database)
    of_jobs = [plan for plan in plans if "jobs" in plan.split()]
    assert of_jobs
    assert not [plan for plan in of_jobs if plan.startswith("SCAN") and "COVERING" not in plan]
    assert not [plan for plan in of_jobs if asked == "usage" and "COVERING" not in plan]
