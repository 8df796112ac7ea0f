"""Audits: rows of `jobs` that release nothing, and a table for what they found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_ID = sa.String(length=40)


def upgrade() -> None:
    """No job that is there is an audit."""
    op.execute("ALTER TABLE jobs ADD COLUMN is_audit BOOLEAN DEFAULT false NOT NULL")
    op.create_table(
        "privacy_audits",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("attacked_job_id", _ID, nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_privacy_audits_job_id")),
        sa.ForeignKeyConstraint(["attacked_job_id"], ["jobs.id"], name=op.f("fk_privacy_audits_attacked_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_privacy_audits")),
    )
    op.create_index(op.f("ix_privacy_audits_attacked_job_id"), "privacy_audits", ["attacked_job_id"])


def downgrade() -> None:
    """Refused: audits would become jobs."""
    raise NotImplementedError("Audits are not turned into jobs.")
