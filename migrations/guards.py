"""Triggers that refuse to change or delete rows, on either database."""

from __future__ import annotations

from alembic import op


def refuse(table: str, verb: str) -> None:
    """Make `verb` (UPDATE or DELETE) on any row of `table` an error; on PostgreSQL, DELETE covers TRUNCATE."""
    name = f"{table}_no_{verb.lower()}"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table}: {verb} is not allowed'); END"
        )
        return
    op.execute(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION datalens_refuse()")
    if verb == "DELETE":
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION datalens_refuse()"
        )


def refuse_update_when(table: str, name: str, condition: str, complaint: str) -> None:
    """Make an update of `table` an error where `condition`, in terms of OLD and NEW, holds."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, '{complaint}'); END"
        )
        return
    op.execute(
        f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({condition}) "
        "EXECUTE FUNCTION datalens_refuse()"
    )
