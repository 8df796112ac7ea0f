"""Names, tags and notes of jobs; tags and notes of datasets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What is there has none yet."""
    op.add_column("jobs", sa.Column("name", sa.String(length=200), nullable=False, server_default=""))
    for table in ("jobs", "datasets"):
        op.add_column(table, sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
        op.add_column(table, sa.Column("notes", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
