"""Priorities of jobs, from 0 to 9."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that are there get the priority of those that name none."""
    # The constraint is one of the column: SQLite cannot add another kind to a table.
    check = "CONSTRAINT ck_jobs_priority_in_range CHECK (priority BETWEEN 0 AND 9)"
    op.execute(f"ALTER TABLE jobs ADD COLUMN priority BIGINT DEFAULT 5 NOT NULL {check}")


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
