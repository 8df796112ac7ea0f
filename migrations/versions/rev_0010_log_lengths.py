"""How much of the ledger log the database has accounted for, and what a frozen account lacks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is accounted for yet: the start that migrates reads the whole log next."""
    op.add_column("installation", _counter("checked_log_bytes"))
    op.add_column("accounts", _counter("checked_log_bytes"))
    op.add_column("accounts", _counter("unbooked_units"))


def downgrade() -> None:
    """Refused: a frozen account would state less than was spent."""
    raise NotImplementedError("What the log knows is not forgotten.")


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
