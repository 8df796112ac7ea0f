"""The schema of version 1.0.0, from which its databases go on; a new one has the newest at once (`new_database.py`)."""

from __future__ import annotations

revision = "0023"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Never run: such a database is there already."""
    raise NotImplementedError("Version 1.0.0 made these databases.")


def downgrade() -> None:
    """Refused, as every step back."""
    raise NotImplementedError("There is no way back to an older schema.")
