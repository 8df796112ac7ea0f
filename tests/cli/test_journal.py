"""`datalens journal`: who did what over the service, and a check of all journals on the machine of the database."""

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from cli.conftest import Run
from cli.service import RunningService
from datalens_service.client import Client
from datalens_service.store.access import access_log, tenants
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT

QUICK = {"method": "moments", "epsilon": 0.1, "synthetic_images": 64, "evaluation": {"enabled": False}}


def test_who_submitted_what_is_listed(service: RunningService, datalens: Run, npz: Path) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(npz, epsilon=1.0, confirm_classes=True)
        job = client.submit(dataset.id, QUICK, accept_low_utility=True)
        client.wait(job.id)
    listed = datalens("journal", "list", "--object-id", job.id, *service.access)
    assert listed.exit_code == 0
    assert ["first", "createJob", job.id] == listed.stdout.splitlines()[-1].split()[3:6]
    asked = ("journal", "list", "--actor", "first", "--outcome", "2xx", "--since", "2020-01-01", "--limit", "1")
    [newest] = json.loads(datalens(*asked, "--json", *service.access).stdout)["items"]
    older = json.loads(datalens(*asked, "--before", newest["seq"], "--json", *service.access).stdout)["items"]
    assert [entry["seq"] for entry in older] == [newest["seq"] - 1]
    for nothing in (("--until", "2020-01-01"), ("--actor", "nobody"), ("--outcome", "5xx")):
        assert json.loads(datalens("journal", "list", *nothing, "--json", *service.access).stdout)["items"] == []
    assert "submitted by  first" in datalens("jobs", "show", job.id, *service.access).stdout
    ledger = json.loads(datalens("datasets", "ledger", dataset.id, "--json", *service.access).stdout)["items"]
    assert [entry["kind"] for entry in ledger][:: len(ledger) - 1] == ["settle", "open"]
    assert {entry["submitted_by"]["name"] for entry in ledger if entry["job_id"]} == {"first"}
    for wrong in (("--since", "yesterday"), ("--outcome", "refused"), ("--before", "0")):
        assert datalens("journal", "list", *wrong, *service.access).exit_code == 2


@pytest.fixture
def noted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database of either kind, named as an operator names it, with entries of two tenants."""
    monkeypatch.setenv("DATALENS_DATABASE_URL", database.url)
    other = tenants.create(database, "second house").id
    for tenant_id in (DEFAULT_TENANT, DEFAULT_TENANT, other):
        access_log.note(database, tenant_id, actor="local", action="test", object_id=None)
    return database


def test_all_journals_are_verified_on_either_database(noted: Database, datalens: Run) -> None:
    found = datalens("journal", "verify", "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert [(one["entries"], one["fault"]) for one in told["journals"]] == [(2, None), (1, None)]
    head = told["journals"][0]["head_hash"]
    assert datalens("journal", "verify", "--head", head).exit_code == 0
    rewritten = datalens("journal", "verify", "--head", head, "--head", "f" * 64)
    assert rewritten.exit_code == 1
    assert f"No entry has the hash {'f' * 64}" in rewritten.stdout


def test_a_journal_that_was_altered_is_named_and_the_others_are_still_checked(noted: Database, datalens: Run) -> None:
    with noted.transaction() as session:
        altered = text("UPDATE audit_entries SET outcome = 403 WHERE tenant_id = 'default' AND seq = 2")
        if "postgresql" in noted.url:
            session.execute(text("ALTER TABLE audit_entries DISABLE TRIGGER USER"))
            session.execute(altered)
        else:
            # Whoever hides what they did puts the guard back.
            guard = session.scalar(text("SELECT sql FROM sqlite_master WHERE name = 'audit_entries_no_update'"))
            session.execute(text("DROP TRIGGER audit_entries_no_update"))
            session.execute(altered)
            session.connection().exec_driver_sql(str(guard))
    found = datalens("journal", "verify")
    assert found.exit_code == 1
    assert "Entry 2 of the audit journal is missing, was altered or is out of place." in found.stdout
    assert [one["fault"] is None for one in json.loads(datalens("journal", "verify", "--json").stdout)["journals"]] == [
        False,
        True,
    ]


def test_a_database_without_its_guards_is_read_and_every_missing_one_is_named(noted: Database, datalens: Run) -> None:
    of_table = " ON audit_entries" if "postgresql" in noted.url else ""
    with noted.transaction() as session:
        for guard in ("audit_entries_no_update", "audit_entries_no_delete"):
            session.execute(text(f"DROP TRIGGER {guard}{of_table}"))
    found = datalens("journal", "verify")
    assert found.exit_code == 1
    assert found.stdout.count("The trigger is missing") == 2
    told = json.loads(datalens("journal", "verify", "--json").stdout)
    assert not told["holds"]
    assert [(one["kind"], one["of"], one["fault"] is None) for one in told["journals"]] == [
        ("guard", "audit_entries_no_delete", False),
        ("guard", "audit_entries_no_update", False),
        ("audit journal", DEFAULT_TENANT, True),
        ("audit journal", told["journals"][3]["of"], True),
    ]
    # Nothing else opens it.
    assert datalens("retention", "show").exit_code == 5
