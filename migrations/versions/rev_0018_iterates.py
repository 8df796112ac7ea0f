"""Weights that a job with individual ε keeps until it has ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new table; nothing changes for jobs that are there."""
    op.create_table(
        "released_iterates",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("step > 0", name=op.f("ck_released_iterates_step_positive")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_released_iterates_job_id")),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_released_iterates")),
    )


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
