"""What a job released: a generator, as all did before, or another kind of model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The table keeps its name: its rows were generators."""
    op.add_column("generators", sa.Column("kind", sa.String(length=32), nullable=False, server_default="generator"))


def downgrade() -> None:
    """Refused: a classifier would be taken for a generator."""
    raise NotImplementedError("What was released stays released.")
