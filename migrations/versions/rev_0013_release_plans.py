"""What a job will charge, release by release: null for jobs of before, of which only the price is known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs that are there plan when they start, and end if that costs anything else than was reserved."""
    op.add_column("jobs", sa.Column("release_plan", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Refused: a waiting job could be planned anew, and differently."""
    raise NotImplementedError("What was reserved is what is run.")
