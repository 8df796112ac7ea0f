"""Totals of the jobs of tenants: kept for those that have ended, added up for the few that have not.

A trigger of the database keeps the totals in the transaction in which a job ends, whatever process ends it, also one of
an older version that runs during an upgrade. PostgreSQL fires it as the transaction commits: no process holds a row of
totals while it works, so none waits for another that is slow.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Connection, Insert, Select, cast, func, insert, literal_column, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from datalens_service.store.schema.service_tables import JobTotalsRow
from datalens_service.store.schema.tables import ArtifactRow, JobRow

AUDIT: Final = "audit"
"""Kind of what makes no model."""
_KEY: Final = ("tenant_id", "state", "kind")
_ADDED: Final = ("jobs", "models", "seconds", "artifact_bytes")
_TRIGGER: Final = "jobs_add_to_totals"
_EVENT: Final = "AFTER UPDATE OF finished_at ON jobs"
_ENDS: Final = "OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL"


def read_totals(session: Session, tenant_id: str | None = None) -> list[JobTotalsRow]:
    """Totals of all jobs and audits by tenant, state and kind; None is all tenants."""
    kept = select(JobTotalsRow.__table__)
    if tenant_id is not None:
        kept = kept.where(JobTotalsRow.tenant_id == tenant_id)
    # The sum is over all tenants: SQLite would find those of one by an index of all of its jobs.
    others = _sum(session.get_bind().dialect.name, JobRow.state.in_(("queued", "running", "paused")))
    totals = session.scalars(select(JobTotalsRow).from_statement(kept.union_all(others)))
    return [total for total in totals if tenant_id in (None, total.tenant_id)]


def fill(connection: Connection) -> None:
    """Add up all jobs that have ended, into an empty table."""
    connection.execute(_add(connection, JobRow.finished_at.is_not(None)))


def keep(connection: Connection) -> None:
    """Have the database add each job when it ends."""
    adding = _add(connection, JobRow.id == literal_column("NEW.id"))
    statement = str(adding.compile(connection, compile_kwargs={"literal_binds": True}))
    sums = ", ".join(f"{name} = job_totals.{name} + excluded.{name}" for name in _ADDED)
    statement += f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {sums};"
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"CREATE TRIGGER {_TRIGGER} {_EVENT} WHEN {_ENDS} BEGIN {statement} END")
        return
    connection.exec_driver_sql(
        "CREATE FUNCTION datalens_add_to_totals() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN {statement} RETURN NULL; END $$"
    )
    connection.exec_driver_sql(
        f"CREATE CONSTRAINT TRIGGER {_TRIGGER} {_EVENT} DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW WHEN ({_ENDS}) EXECUTE FUNCTION datalens_add_to_totals()"
    )


def _add(connection: Connection, which: ColumnElement[bool]) -> Insert:
    return insert(JobTotalsRow).from_select([*_KEY, *_ADDED], _sum(connection.dialect.name, which))


def _sum(dialect: str, which: ColumnElement[bool]) -> Select[Any]:
    """Totals of some jobs, in the columns of `JobTotalsRow`."""
    kind = func.coalesce(JobRow.result, AUDIT).label("kind")
    seconds = func.sum(_whole_second(dialect, JobRow.finished_at) - _whole_second(dialect, JobRow.started_at))
    anybodys = select(func.sum(ArtifactRow.size)).where(ArtifactRow.job_id == JobRow.id, ArtifactRow.releasable)
    # PostgreSQL's sums are no integers.
    sums = [cast(func.coalesce(added, 0), BigInteger) for added in (seconds, func.sum(anybodys.scalar_subquery()))]
    columns: list[ColumnElement[Any]] = [func.count(), func.count(JobRow.released_at), *sums]
    return (
        select(JobRow.tenant_id, JobRow.state, kind, *columns)
        .where(which)
        .group_by(JobRow.tenant_id, JobRow.state, kind)
    )


def _whole_second(dialect: str, at: InstrumentedAttribute[Any]) -> ColumnElement[int]:
    """Return an expression for a time in whole seconds since 1970."""
    if dialect == "sqlite":
        return cast(func.strftime("%s", at), BigInteger)
    return cast(func.extract("epoch", func.date_trunc("second", at)), BigInteger)
