"""Triggers: the journal is append-only, spends never fall, tombstones stay.

They hold against mistakes and against every other program with the same database user. Against an owner of the
database who drops them stand the hash chain and the log outside the database.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_REFUSED = (
    ("ledger_entries", "UPDATE"),
    ("ledger_entries", "DELETE"),
    ("datasets", "DELETE"),
    ("accounts", "DELETE"),
    ("record_fingerprints", "UPDATE"),
    ("record_fingerprints", "DELETE"),
    ("aggregates", "UPDATE"),
)
_REFUND = "NEW.charged_units < OLD.charged_units OR NEW.head_seq < OLD.head_seq"


def upgrade() -> None:
    """Guard every table that the proof of a spend rests on."""
    if op.get_bind().dialect.name == "sqlite":
        _sqlite()
    else:
        _postgresql()


def downgrade() -> None:
    """Refused: an unguarded ledger proves nothing."""
    raise NotImplementedError("The guards of the ledger are not removed.")


def _sqlite() -> None:
    for table, verb in _REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table}: {verb} is not allowed'); END"
        )
    op.execute(
        f"CREATE TRIGGER accounts_no_refund BEFORE UPDATE ON accounts WHEN {_REFUND} "
        "BEGIN SELECT RAISE(ABORT, 'accounts: a spend is never taken back'); END"
    )


def _postgresql() -> None:
    op.execute(
        "CREATE FUNCTION datalens_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION '%: % is not allowed', TG_TABLE_NAME, TG_OP USING ERRCODE = 'integrity_constraint_violation'; "
        "END $$"
    )
    for table, verb in _REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION datalens_refuse()"
        )
    for table in sorted({table for table, verb in _REFUSED if verb == "DELETE"}):
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION datalens_refuse()"
        )
    op.execute(
        f"CREATE TRIGGER accounts_no_refund BEFORE UPDATE ON accounts FOR EACH ROW WHEN ({_REFUND}) "
        "EXECUTE FUNCTION datalens_refuse()"
    )
