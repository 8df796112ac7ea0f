"""Synthetic images are found by the hash of their pixels."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Add a table that the version before does not know of."""
    op.create_table(
        "released_images",
        sa.Column("pixel_hash", sa.LargeBinary(), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_released_images_job_id")),
        sa.PrimaryKeyConstraint("pixel_hash", "job_id", name=op.f("pk_released_images")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_released_images_job_id"), "released_images", ["job_id"])
