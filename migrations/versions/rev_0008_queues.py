"""Which queue a job waits in: null where any worker may take it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that wait already go to whoever is free."""
    op.add_column("jobs", sa.Column("queue", sa.String(length=64), nullable=True))


def downgrade() -> None:
    """Return to one queue."""
    op.drop_column("jobs", "queue")
