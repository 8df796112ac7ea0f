"""A database that has just been made: the newest tables, their guards, and the rows that every database has.

The guards are triggers: the journal is append-only, spends never fall, tombstones stay. They hold against mistakes and
against every other program with the same database user. Against an owner of the database who drops them stand the hash
chain and the log outside the database.
"""

import secrets
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from datalens_service.store.schema import job_totals
from datalens_service.store.schema.service_tables import TenantRow
from datalens_service.store.schema.tables import DEFAULT_TENANT, HASH_LENGTH, Base, InstallationRow

_REFUSED: Final = {
    "ledger_entries": ("UPDATE", "DELETE"),
    "datasets": ("DELETE",),
    "accounts": ("DELETE",),
    "record_fingerprints": ("UPDATE", "DELETE"),
    "aggregates": ("UPDATE",),
    "audit_entries": ("UPDATE",),
    "reservations": ("DELETE",),
}
_SPEND: Final = "a spend is never taken back"
_REFUSED_UPDATES: Final = (
    ("accounts", "no_refund", "NEW.charged_units < OLD.charged_units OR NEW.head_seq < OLD.head_seq", _SPEND),
    ("accounts", "no_slack_refund", "NEW.charged_slack < OLD.charged_slack", _SPEND),
    (
        "accounts",
        "no_lowering",
        "NEW.limit_units < OLD.limit_units OR NEW.delta <> OLD.delta",
        "a limit only rises, and delta stays",
    ),
    (
        "tenants",
        "no_hidden_entries",
        "NEW.audit_base_seq < OLD.audit_base_seq OR NEW.audit_base_seq > NEW.audit_seq",
        "the beginning of a journal moves forwards only",
    ),
    (
        "reservations",
        "no_refund",
        "NEW.charged_units < OLD.charged_units OR (OLD.settled AND NOT NEW.settled) "
        "OR NEW.id <> OLD.id OR NEW.account_id <> OLD.account_id OR NEW.owner_id <> OLD.owner_id",
        _SPEND,
    ),
)
_POSTGRESQL_FUNCTION: Final = (
    "CREATE FUNCTION datalens_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "RAISE EXCEPTION '%: % is not allowed', TG_TABLE_NAME, TG_OP USING ERRCODE = 'integrity_constraint_violation'; "
    "END $$"
)

_IS_KEPT: Final = "OLD.seq > (SELECT audit_base_seq FROM tenants WHERE id = OLD.tenant_id)"
"""Entries of an access journal go only behind a beginning that was moved forwards before (`access_log.shorten`)."""
_POSTGRESQL_JOURNAL: Final = (
    "CREATE FUNCTION datalens_refuse_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF {_IS_KEPT} THEN RAISE EXCEPTION '%: % is not allowed', TG_TABLE_NAME, TG_OP "
    "USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN OLD; END $$"
)


def fill(connection: Connection) -> None:
    """Make everything in an empty database."""
    Base.metadata.create_all(connection)
    guard = _guard_sqlite if connection.dialect.name == "sqlite" else _guard_postgresql
    guard(connection)
    job_totals.keep(connection)
    key = {"id": 1, "fingerprint_key": secrets.token_bytes(32), "checked_log_bytes": 0}
    connection.execute(sa.insert(InstallationRow).values(key))
    tenant = {"id": DEFAULT_TENANT, "name": DEFAULT_TENANT, "audit_seq": 0, "audit_hash": "0" * HASH_LENGTH}
    connection.execute(sa.insert(TenantRow).values(tenant))


def _guard_sqlite(connection: Connection) -> None:
    for table, verbs in _REFUSED.items():
        for verb in verbs:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table}: {verb} is not allowed'); END"
            )
    connection.exec_driver_sql(
        f"CREATE TRIGGER audit_entries_no_delete BEFORE DELETE ON audit_entries WHEN {_IS_KEPT} "
        "BEGIN SELECT RAISE(ABORT, 'audit_entries: DELETE is not allowed'); END"
    )
    connection.exec_driver_sql(
        "CREATE TRIGGER tenants_no_delete BEFORE DELETE ON tenants "
        "BEGIN SELECT RAISE(ABORT, 'tenants: DELETE is not allowed'); END"
    )
    for table, name, condition, complaint in _REFUSED_UPDATES:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_{name} BEFORE UPDATE ON {table} WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, '{table}: {complaint}'); END"
        )


def _guard_postgresql(connection: Connection) -> None:
    connection.execute(sa.text(_POSTGRESQL_FUNCTION))
    refuse = "EXECUTE FUNCTION datalens_refuse()"
    for table, verbs in _REFUSED.items():
        for verb in verbs:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} FOR EACH ROW {refuse}"
            )
        if "DELETE" in verbs:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {refuse}"
            )
    connection.execute(sa.text(_POSTGRESQL_JOURNAL))
    connection.exec_driver_sql(
        "CREATE TRIGGER audit_entries_no_delete BEFORE DELETE ON audit_entries FOR EACH ROW "
        "EXECUTE FUNCTION datalens_refuse_kept()"
    )
    connection.exec_driver_sql(f"CREATE TRIGGER tenants_no_delete BEFORE DELETE ON tenants FOR EACH ROW {refuse}")
    connection.exec_driver_sql(
        f"CREATE TRIGGER audit_entries_no_truncate BEFORE TRUNCATE ON audit_entries FOR EACH STATEMENT {refuse}"
    )
    for table, name, condition, _ in _REFUSED_UPDATES:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_{name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({condition}) {refuse}"
        )
