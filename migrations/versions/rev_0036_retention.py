"""Things may be kept for some days alone, and tenants removed."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"

_KINDS: Final = ("datasets", "results", "uploads", "events", "deliveries", "journal")
_GENESIS: Final = "0" * 64
_IS_KEPT: Final = "OLD.seq > (SELECT audit_base_seq FROM tenants WHERE id = OLD.tenant_id)"
_HIDES: Final = "NEW.audit_base_seq < OLD.audit_base_seq OR NEW.audit_base_seq > NEW.audit_seq"


def upgrade() -> None:
    """Add tables and columns, and let entries of journals go behind a beginning that has moved forwards."""
    days = [sa.Column(kind, sa.BigInteger(), nullable=True) for kind in _KINDS]
    key = sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_retention"))
    op.create_table("retention", sa.Column("tenant_id", sa.String(40), nullable=False), *days, key)
    op.create_table(
        "removals",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("path", sa.String(512), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("kind", "path", name=op.f("pk_removals")),
    )
    op.add_column("jobs", sa.Column("results_removed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("tenants", sa.Column("audit_base_seq", sa.BigInteger(), nullable=False, server_default="0"))
    base_hash = sa.Column("audit_base_hash", sa.String(64), nullable=False, server_default=_GENESIS)
    op.add_column("tenants", base_hash)
    for name, type_ in (
        ("removing_since", sa.DateTime(timezone=True)), ("removed_at", sa.DateTime(timezone=True)),
        ("receipt", sa.JSON()),
    ):  # fmt: skip
        op.add_column("tenants", sa.Column(name, type_, nullable=True))
    connection = op.get_bind()
    _remove_again(connection)
    (_guard_sqlite if connection.dialect.name == "sqlite" else _guard_postgresql)(connection)


def _remove_again(connection: sa.Connection) -> None:
    """Have owner-only files of deleted data sets removed once more: the version before did so at each start."""
    connection.exec_driver_sql(
        "INSERT INTO removals (kind, path, noted_at) SELECT 'job_files', jobs.id, datasets.created_at FROM jobs "
        "JOIN datasets ON datasets.id = jobs.dataset_id WHERE datasets.state = 'deleted'"
    )


def _guard_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP TRIGGER audit_entries_no_delete")
    for trigger, table, event, when, complaint in (
        ("audit_entries_no_delete", "audit_entries", "DELETE", f"WHEN {_IS_KEPT} ", "DELETE is not allowed"),
        ("tenants_no_delete", "tenants", "DELETE", "", "DELETE is not allowed"),
        ("tenants_no_hidden_entries", "tenants", "UPDATE", f"WHEN {_HIDES} ",
         "the beginning of a journal moves forwards only"),
    ):  # fmt: skip
        connection.exec_driver_sql(
            f"CREATE TRIGGER {trigger} BEFORE {event} ON {table} {when}"
            f"BEGIN SELECT RAISE(ABORT, '{table}: {complaint}'); END"
        )


def _guard_postgresql(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP TRIGGER audit_entries_no_delete ON audit_entries")
    connection.execute(
        sa.text(
            "CREATE FUNCTION datalens_refuse_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF {_IS_KEPT} THEN RAISE EXCEPTION '%: % is not allowed', TG_TABLE_NAME, TG_OP "
            "USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN OLD; END $$"
        )
    )
    refuse = "EXECUTE FUNCTION datalens_refuse()"
    for statement in (
        "audit_entries_no_delete BEFORE DELETE ON audit_entries FOR EACH ROW EXECUTE FUNCTION datalens_refuse_kept()",
        f"tenants_no_delete BEFORE DELETE ON tenants FOR EACH ROW {refuse}",
        f"tenants_no_hidden_entries BEFORE UPDATE ON tenants FOR EACH ROW WHEN ({_HIDES}) {refuse}",
    ):
        connection.exec_driver_sql(f"CREATE TRIGGER {statement}")
