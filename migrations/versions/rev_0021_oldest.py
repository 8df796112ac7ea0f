"""The oldest schema that goes on, from shortly before version 1.0.0; a new database has the newest at once."""

from __future__ import annotations

revision = "0021"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Never run: such a database is there already."""
    raise NotImplementedError("Earlier versions made these databases.")


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
