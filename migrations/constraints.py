"""Changing what a CHECK constraint says, on either database and without copying the table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


def replace_check(table: str, name: str, before: str, after: str) -> None:
    """Let the constraint `name` of `table` say `after` instead of `before`.

    SQLite cannot alter a constraint, and a copy of a table that others refer to would trip over them. Its manual
    gives this way for constraints that no stored row can violate: `after` must hold for every row of `before`.

    Args:
        table: Name of the table.
        name: Full name of the constraint.
        before: Condition as the table was made with.
        after: A weaker condition.

    Raises:
        LookupError: The table has no such condition.
    """
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint(op.f(name), table, type_="check")
        op.create_check_constraint(op.f(name), table, after)
        return
    connection = op.get_bind()
    query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :table")
    made_by = connection.scalar(query, {"table": table}) or ""
    if before not in made_by:
        raise LookupError(f"Table {table} was not made with the condition of {name}.")
    connection.exec_driver_sql("PRAGMA writable_schema=ON")
    change = sa.text("UPDATE sqlite_master SET sql = :sql WHERE type = 'table' AND name = :table")
    connection.execute(change, {"sql": made_by.replace(before, after), "table": table})
    version = connection.scalar(sa.text("PRAGMA schema_version"))
    connection.exec_driver_sql(f"PRAGMA schema_version={int(version) + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema=OFF")
