"""Name of the file that an upload brings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Those that are there came without one."""
    op.add_column("uploads", sa.Column("name", sa.String(length=200), nullable=True))


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
