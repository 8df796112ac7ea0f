"""Uploads that arrive in pieces, and how uploads become data sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two tables of their own; data sets stay what they are."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "length > 0 AND received >= 0 AND received <= length", name=op.f("ck_uploads_received_within_length")
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_uploads_key_id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_expires_at", "uploads", ["expires_at"])
    _intakes()


def downgrade() -> None:
    """Refused: reports and unfinished uploads would be lost without a word."""
    raise NotImplementedError("Uploads are not removed.")


def _intakes() -> None:
    op.create_table(
        "intakes",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("upload_id", sa.String(length=40), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("form", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("report", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('validating', 'ready', 'invalid', 'deleted')", name=op.f("ck_intakes_state_known")
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_intakes_key_id"),
        sa.PrimaryKeyConstraint("dataset_id", name="pk_intakes"),
        sa.UniqueConstraint("upload_id", name="uq_intakes_upload_id"),
    )
    op.create_index("ix_intakes_state", "intakes", ["state"])
    op.create_index("ix_intakes_created_at_dataset_id", "intakes", ["created_at", "dataset_id"])
