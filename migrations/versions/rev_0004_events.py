"""Events of jobs, and jobs that pause."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.constraints import replace_check

revision = "0004"
down_revision = "0008"
branch_labels = None
depends_on = None

_BEFORE = "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')"
_AFTER = "state IN ('queued', 'running', 'paused', 'succeeded', 'failed', 'cancelled')"


def upgrade() -> None:
    """Jobs that exist have no events yet; theirs begin with the next change."""
    replace_check("jobs", "ck_jobs_state_known", _BEFORE, _AFTER)
    op.add_column("jobs", sa.Column("pause_requested", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("phase_started_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("phase_start", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=64), nullable=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("maximum", sa.BigInteger(), nullable=False),
        sa.Column("charged_units", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_events_job_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_job_events"),
    )


def downgrade() -> None:
    """Refused: a paused job has no state before this revision."""
    raise NotImplementedError("Paused jobs cannot be told to an older version.")
