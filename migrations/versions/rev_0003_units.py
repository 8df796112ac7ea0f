"""Which unit a record came with: a keyed hash, null where the record is a unit of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Records that are known already were units of their own."""
    op.add_column("record_fingerprints", sa.Column("unit_print", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Refused: without it, a budget per person could be spent again per image."""
    raise NotImplementedError("What is known of units is not removed.")
