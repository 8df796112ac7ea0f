"""When a job's images became ready: null until then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that succeeded had their images at their end."""
    op.add_column("jobs", sa.Column("released_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE jobs SET released_at = finished_at WHERE state = 'succeeded' AND measured_job_id IS NULL")


def downgrade() -> None:
    """Refused: images of a job whose evaluation goes on would be lost with it."""
    raise NotImplementedError("What was released stays released.")
