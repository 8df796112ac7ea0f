"""What the scenarios of faults ask for at their end, that nothing is lost, is noticed where something is."""

import json

import pytest
from sqlalchemy import text

from chaos.lost import find_lost, read_rows, say_lost
from deployments.deployment import QUICK, Deployment


def alter(local: Deployment, statement: str) -> None:
    """Do to the database what nothing in the service does."""
    with local.database.transaction() as session:
        for (name,) in session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(text(f"DROP TRIGGER {name}"))
        session.execute(text("PRAGMA defer_foreign_keys = ON"))
        session.execute(text(statement))


def test_nothing_is_lost_of_a_job_that_succeeded(local: Deployment) -> None:
    before = read_rows(local.database)
    local.execute(local.submit(QUICK))
    assert find_lost(local, before) == []
    assert say_lost([]) == "nothing"


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE reservations SET charged_units = charged_units - 1", "says other reserved and charged units"),
        ("UPDATE accounts SET charged_units = charged_units - 1", "are its charged"),
        ("UPDATE ledger_entries SET units = units - 1 WHERE kind = 'charge'", "was altered"),
        ("UPDATE ledger_entries SET step = 99 WHERE kind = 'charge' AND step = 0", "was altered"),
        ("DELETE FROM artifacts WHERE name = 'samples.png'", "1 of file of a job"),
    ],
)
def test_each_loss_is_found(local: Deployment, statement: str, found: str) -> None:
    local.execute(local.submit(QUICK))
    before = read_rows(local.database)
    alter(local, statement)
    lost = find_lost(local, before)
    assert any(found in one for one in lost), lost
    assert say_lost(lost) == lost


def test_a_proof_that_states_another_cost_than_the_ledger_is_found(local: Deployment) -> None:
    job = local.execute(local.submit(QUICK))
    path = local.artifacts.get(job.id, "privacy.json").path
    proof = json.loads(path.read_bytes())
    proof["card"]["privacy"]["units"] -= 1
    path.chmod(0o600)
    path.write_text(json.dumps(proof))
    [lost] = find_lost(local)
    assert f"the proof of {job.id}" in lost
