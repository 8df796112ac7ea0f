"""Totals of the jobs that have ended are kept, in place of an index to add them up by."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_KEY: Final = {"tenant_id": 40, "state": 16, "kind": 32}
_ADDED: Final = ("jobs", "models", "seconds", "artifact_bytes")
_ADD: Final = (
    "INSERT INTO job_totals (tenant_id, state, kind, jobs, models, seconds, artifact_bytes) "
    "SELECT tenant_id, state, coalesce(result, 'audit'), count(*), count(released_at), "
    "CAST(coalesce(sum({finished_at} - {started_at}), 0) AS BIGINT), CAST(coalesce(sum((SELECT sum(artifacts.size) "
    "FROM artifacts WHERE artifacts.job_id = jobs.id AND artifacts.releasable)), 0) AS BIGINT) "
    "FROM jobs WHERE {which} GROUP BY tenant_id, state, coalesce(result, 'audit')"
)
_SECOND: Final = {
    "sqlite": "CAST(strftime('%s', jobs.{}) AS BIGINT)",
    "postgresql": "CAST(extract(epoch FROM date_trunc('second', jobs.{})) AS BIGINT)",
}
_ENDS: Final = "OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL"


def upgrade() -> None:
    """All that have ended are added up once."""
    columns = [sa.Column(name, sa.String(length=length), primary_key=True) for name, length in _KEY.items()]
    op.create_table("job_totals", *columns, *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _ADDED))
    connection = op.get_bind()
    seconds = {name: _SECOND[connection.dialect.name].format(name) for name in ("finished_at", "started_at")}
    connection.exec_driver_sql(_ADD.format(which="finished_at IS NOT NULL", **seconds))
    _keep(connection, _ADD.format(which="jobs.id = NEW.id", **seconds))
    op.drop_index(op.f("ix_jobs_tenant_id_state_is_audit_started_at_finished_at"), "jobs")


def _keep(connection: sa.Connection, statement: str) -> None:
    """Have the database add each job when it ends."""
    sums = ", ".join(f"{name} = job_totals.{name} + excluded.{name}" for name in _ADDED)
    statement += f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {sums};"
    trigger = "TRIGGER jobs_add_to_totals AFTER UPDATE OF finished_at ON jobs"
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"CREATE {trigger} WHEN {_ENDS} BEGIN {statement} END")
        return
    connection.exec_driver_sql(
        "CREATE FUNCTION datalens_add_to_totals() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN {statement} RETURN NULL; END $$"
    )
    connection.exec_driver_sql(
        f"CREATE CONSTRAINT {trigger} DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW WHEN ({_ENDS}) EXECUTE FUNCTION datalens_add_to_totals()"
    )
