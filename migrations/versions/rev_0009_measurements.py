"""Which job a measurement belongs to: null for jobs that train."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that are there train."""
    op.add_column("jobs", sa.Column("measured_job_id", sa.String(40), nullable=True))
    op.create_index("ix_jobs_measured_job_id", "jobs", ["measured_job_id"])


def downgrade() -> None:
    """Refused: a measurement would look like a job that trains, and would be run as one."""
    raise NotImplementedError("Measurements are not forgotten.")
