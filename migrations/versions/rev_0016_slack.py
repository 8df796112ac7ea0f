"""Sampled batches: slack beside the units, and the state that takes the place of a job's first sums."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.guards import refuse_update_when

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_HELD = (
    "reserved_slack >= 0 AND charged_slack >= 0 AND held_for_slack >= 0 "
    "AND (held_for_slack > 0 OR (reserved_slack = 0 AND charged_slack = 0)) "
    "AND reserved_units <= limit_units - charged_units - held_for_slack"
)


def upgrade() -> None:
    """Nothing changes for accounts that are there: their slack is 0."""
    _add("ledger_entries", "slack", "CONSTRAINT ck_ledger_entries_slack_not_negative CHECK (slack >= 0)")
    _add("accounts", "reserved_slack")
    _add("accounts", "charged_slack")
    # A constraint of the last column: SQLite cannot add one to a table, and a new table would lose its triggers.
    _add("accounts", "held_for_slack", f"CONSTRAINT ck_accounts_slack_is_held CHECK ({_HELD})")
    # As with units: a trigger beside that of revision 2.
    refuse_update_when(
        "accounts",
        "accounts_no_slack_refund",
        "NEW.charged_slack < OLD.charged_slack",
        "accounts: a spend is never taken back",
    )
    op.create_table(
        "released_states",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("step > 0", name=op.f("ck_released_states_step_positive")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_released_states_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_released_states")),
    )


def downgrade() -> None:
    """Refused: slack that was spent would be forgotten."""
    raise NotImplementedError("What was spent stays spent.")


def _add(table: str, column: str, constraint: str = "") -> None:
    op.execute(f"ALTER TABLE {table} ADD COLUMN {column} BIGINT DEFAULT 0 NOT NULL {constraint}")
