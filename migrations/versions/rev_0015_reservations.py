"""Reservations in a table of their own; until here they were columns of `jobs`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.guards import refuse, refuse_update_when

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_ID = sa.String(length=40)


def upgrade() -> None:
    """The id of a reservation is that of its row in `jobs`: journal entries keep their `job_id` and hashes."""
    _create_table()
    op.execute(
        "INSERT INTO reservations "
        "(id, account_id, owner_kind, owner_id, reserved_units, charged_units, settled, created_at) "
        "SELECT id, account_id, CASE WHEN measured_job_id IS NULL THEN 'job' ELSE 'measurement' END, id, "
        "reserved_units, charged_units, settled, created_at FROM jobs"
    )
    _guard()
    # On SQLite this rebuilds `jobs`, which has no triggers to lose; `aggregates` refers to it and is not rebuilt.
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_constraint(op.f("ck_jobs_units_not_negative"), type_="check")
        jobs.drop_constraint(op.f("ck_jobs_settled_holds_nothing"), type_="check")
        for column in ("reserved_units", "charged_units", "settled"):
            jobs.drop_column(column)
    if op.get_bind().dialect.name == "sqlite":
        _check_references()


def downgrade() -> None:
    """Refused: what is reserved and charged must not be without its guards."""
    raise NotImplementedError("Reservations are not removed.")


def _check_references() -> None:
    """A rebuild runs without foreign keys, so that dropping the old table deletes nothing; look at them afterwards."""
    for table in ("reservations", "aggregates", "artifacts", "job_events", "generators"):
        broken = op.get_bind().execute(sa.text(f"PRAGMA foreign_key_check({table})")).first()
        if broken is not None:
            raise RuntimeError(f"A row of {table} refers to a row that is missing; restore the database.")


def _create_table() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("account_id", _ID, nullable=False),
        sa.Column("owner_kind", sa.String(length=16), nullable=False),
        sa.Column("owner_id", _ID, nullable=False),
        sa.Column("reserved_units", sa.BigInteger(), nullable=False),
        sa.Column("charged_units", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("owner_kind IN ('job', 'measurement')", name=op.f("ck_reservations_owner_kind_known")),
        sa.CheckConstraint(
            "reserved_units >= 0 AND charged_units >= 0", name=op.f("ck_reservations_units_not_negative")
        ),
        sa.CheckConstraint("NOT settled OR reserved_units = 0", name=op.f("ck_reservations_settled_holds_nothing")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_reservations_account_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["jobs.id"], name=op.f("fk_reservations_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.UniqueConstraint("owner_id", name=op.f("uq_reservations_owner_id")),
    )
    op.create_index(op.f("ix_reservations_account_id"), "reservations", ["account_id"])


def _guard() -> None:
    refuse("reservations", "DELETE")
    refuse_update_when(
        "reservations",
        "reservations_no_refund",
        "NEW.charged_units < OLD.charged_units OR (OLD.settled AND NOT NEW.settled) "
        "OR NEW.id <> OLD.id OR NEW.account_id <> OLD.account_id OR NEW.owner_id <> OLD.owner_id",
        "reservations: a spend is never taken back",
    )
