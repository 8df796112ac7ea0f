"""Each revision leaves what the version before reads and writes: expand in one release, contract in a later one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import alembic.command
import pytest
import sqlalchemy as sa

from datalens_service.store.database import Database, _alembic_config, _scripts

from .backups import remove
from .books import by_hand
from .test_migrations import VERSION_1, _empty, _run

pytestmark = pytest.mark.both_databases

LISTED = {
    # Why 1.1.0 cannot work beside 1.0.0: the name `plan` was given to another column.
    "0024": {"takes jobs.release_plan", "demands jobs.price"},
    # Adds up what has ended, whichever version ended it.
    "0027": {"has jobs_add_to_totals run on jobs"},
    # The version before deletes no tenant, and does not touch the columns that say where a journal begins.
    "0036": {"has tenants_no_delete run on tenants", "has tenants_no_hidden_entries run on tenants"},
}
"""What a revision takes or demands nevertheless. An entry for a version after 1.1.0 also raises
`InstallationRow.oldest_revision` to its revision, so that the version before refuses to start."""


@dataclass(frozen=True)
class Schema:
    """What programs may rely on, and what they must observe, for each table."""

    columns: dict[str, dict[str, str]]
    demands: dict[str, set[str]]


def read_schema(database: Database) -> Schema:
    engine = sa.create_engine(database.url)
    try:
        found = sa.inspect(engine)
        names = set(found.get_table_names())
        columns = {name: {one["name"]: str(one["type"]) for one in found.get_columns(name)} for name in names}
        demands = {name: _demands(found, name) for name in names}
        with engine.connect() as connection:
            for trigger, table in connection.execute(sa.text(_TRIGGERS[database.dialect])):
                demands[table].add(f"has {trigger} run on {table}")
    finally:
        engine.dispose()
    return Schema(columns, demands)


_TRIGGERS = {
    "sqlite": "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal",
}


def _demands(found: sa.Inspector, table: str) -> set[str]:
    """What a row has to have."""
    named = {
        f"demands {table}.{one['name']}"
        for one in found.get_columns(table)
        if not one["nullable"] and one.get("default") is None and one.get("autoincrement") is not True
    }
    unique = [tuple(one["column_names"]) for one in found.get_unique_constraints(table)]
    unique += [tuple(one["column_names"]) for one in found.get_indexes(table) if one["unique"]]
    keys = [(*one["constrained_columns"], one["referred_table"]) for one in found.get_foreign_keys(table)]
    checks = [re.sub(r"\s+", " ", str(one["sqltext"])) for one in found.get_check_constraints(table)]
    return named | {f"restricts {table} by {one}" for one in [*unique, *keys, *checks]}


def compare(before: Schema, after: Schema) -> set[str]:
    """What the version before cannot bear."""
    found = {f"takes {table}" for table in before.columns.keys() - after.columns.keys()}
    for table in before.columns.keys() & after.columns.keys():
        was, now = before.columns[table], after.columns[table]
        found |= {f"takes {table}.{name}" for name in was.keys() - now.keys()}
        found |= {
            f"changes {table}.{name} to {now[name]}" for name in was.keys() & now.keys() if was[name] != now[name]
        }
        found |= after.demands[table] - before.demands[table]
    return found


@pytest.fixture
def older(database: Database, tmp_path: Path) -> Iterator[Database]:
    """An empty database of version 1.0.0."""
    made = _empty(database, tmp_path)
    _run(made, (VERSION_1 / f"{database.dialect}.sql").read_text())
    yield made
    remove(made)


def advance(database: Database, revision: str) -> None:
    with database._migrating() as connection:
        alembic.command.upgrade(_alembic_config(connection), revision)


def test_no_revision_takes_or_demands_anything_that_is_not_listed(older: Database) -> None:
    revisions = [script.revision for script in _scripts().walk_revisions()][::-1]
    before, found = read_schema(older), {}
    for revision in revisions[revisions.index("0023") + 1 :]:
        advance(older, revision)
        after = read_schema(older)
        found[revision] = compare(before, after)
        before = after
    assert len(found) >= 8
    assert {revision: taken for revision, taken in found.items() if taken} == LISTED


BROKEN = {
    "DROP TABLE workers": "takes workers",
    "ALTER TABLE jobs RENAME COLUMN notes TO remarks": "takes jobs.notes",
    "ALTER TABLE jobs DROP COLUMN notes": "takes jobs.notes",
    "CREATE UNIQUE INDEX one_name ON jobs (name)": "restricts jobs by ('name',)",
}


@pytest.mark.parametrize("statement", BROKEN)
def test_what_is_taken_is_seen(database: Database, statement: str) -> None:
    before = read_schema(database)
    by_hand(database, statement)
    assert BROKEN[statement] in compare(before, read_schema(database))


def test_a_column_that_must_be_named_is_seen(database: Database) -> None:
    before = read_schema(database)
    by_hand(
        database,
        "ALTER TABLE tenants ADD COLUMN must INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE tenants ADD COLUMN may TEXT",
    )
    assert compare(before, read_schema(database)) == set()
    if database.dialect == "postgresql":
        by_hand(database, "ALTER TABLE tenants ALTER COLUMN must DROP DEFAULT")
        assert compare(before, read_schema(database)) == {"demands tenants.must"}
