import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.proof.hash_chain import GENESIS, Entry, follow

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def chain(*steps: tuple[str, str | None, int]) -> list[Entry]:
    """A well-sealed chain of (kind, job, units)."""
    entries: list[Entry] = []
    for number, (kind, job_id, ledger_units) in enumerate(steps, start=1):
        previous = entries[-1].hash if entries else GENESIS
        entries.append(
            Entry.sealed(
                account_id="acc",
                seq=number,
                kind=kind,
                job_id=job_id,
                ledger_units=ledger_units,
                at=NOON,
                previous_hash=previous,
            )
        )
    return entries


GOOD = chain(
    ("open", None, 100),
    ("reserve", "a", 60),
    ("charge", "a", 20),
    ("reserve", "b", 30),
    ("charge", "a", 20),
    ("settle", "a", 20),
    ("recovered", "b", 40),
    ("join", None, 0),
    ("delete", None, 0),
)


def test_a_chain_adds_up() -> None:
    balance = follow(GOOD)
    assert (balance.limit, balance.total_reserved, balance.total_charged) == (100, 0, 80)
    assert dict(balance.charged) == {"a": 40, "b": 40}
    assert (balance.head_seq, balance.head_hash) == (9, GOOD[-1].hash)


def test_a_known_entry_keeps_its_hash_for_ever() -> None:
    """Bundles of earlier versions must go on to verify."""
    fields = (
        '{"account_id":"acc","at":"2026-11-20T12:00:00.000000+00:00","dataset_id":null,"job_id":null,"kind":"open",'
        '"label":"","lease_token":null,"previous_hash":"'
        + "0" * 64
        + '","recovers":null,"seq":1,"step":null,"units":100}'
    )
    assert GOOD[0].hash == hashlib.sha256(fields.encode()).hexdigest()


@pytest.mark.parametrize("slack", [0, 7])
def test_what_is_hashed_is_the_entry_as_it_is_exported(slack: int) -> None:
    entry = Entry.sealed(
        account_id="acc", seq=2, kind="charge", dataset_id="ds", job_id="job", step=0, label="ε = 1", ledger_units=3,
        slack=slack, lease_token=1, at=NOON, recovers=None, previous_hash=GOOD[0].hash,
    )  # fmt: skip
    fields = entry.model_dump(exclude={"hash"}) | {"at": "2026-11-20T12:00:00.000000+00:00"}
    assert ("slack" in fields) == bool(slack)
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert entry.hash == hashlib.sha256(canonical.encode()).hexdigest()


def test_the_hash_does_not_depend_on_how_an_instant_is_written() -> None:
    elsewhere = GOOD[1].model_copy(update={"at": NOON.astimezone(timezone(timedelta(hours=5)))})
    assert elsewhere.computed_hash() == GOOD[1].hash


def test_an_entry_survives_the_way_through_json() -> None:
    again = [Entry.model_validate_json(entry.model_dump_json()) for entry in GOOD]
    assert follow(again).head_hash == GOOD[-1].hash


OTHER_VALUES: dict[str, Any] = {
    "account_id": "acd",
    "kind": "settle",
    "dataset_id": "ds",
    "job_id": "c",
    "step": 3,
    "label": "x",
    "slack": 3,
    "ledger_units": 19,
    "lease_token": 2,
    "at": NOON + timedelta(microseconds=1),
    "recovers": "0" * 64,
    "previous_hash": "1" * 64,
    "hash": "2" * 64,
}


@pytest.mark.parametrize("field", sorted(OTHER_VALUES))
def test_changing_any_field_is_seen_and_the_entry_named(field: str) -> None:
    forged = list(GOOD)
    forged[2] = forged[2].model_copy(update={field: OTHER_VALUES[field]})
    with pytest.raises(LedgerCorrupt) as error:
        follow(forged)
    assert error.value.extra["entry"] == 3


def test_every_field_is_tried() -> None:
    assert OTHER_VALUES.keys() | {"seq"} == set(Entry.model_fields)


@given(st.permutations(range(len(GOOD))).filter(lambda order: list(order) != sorted(order)))
def test_any_other_order_is_seen(order: list[int]) -> None:
    with pytest.raises(LedgerCorrupt):
        follow([GOOD[position] for position in order])


@given(st.sets(st.integers(0, len(GOOD) - 2), min_size=1))
def test_any_gap_is_seen_and_its_first_entry_named(missing: set[int]) -> None:
    with pytest.raises(LedgerCorrupt) as error:
        follow([entry for position, entry in enumerate(GOOD) if position not in missing])
    assert error.value.extra["entry"] == min(missing) + 1


def test_an_entry_resealed_in_place_breaks_the_next_one() -> None:
    cheaper = GOOD[2].model_dump(exclude={"hash"}) | {"units": 1}
    forged = [*GOOD[:2], Entry.sealed(**cheaper), *GOOD[3:]]
    with pytest.raises(LedgerCorrupt, match=r"Entry 4 .* does not follow"):
        follow(forged)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([("open", None, 10), ("reserve", "a", 11)], "Entry 2 .* exceeds the limit"),
        ([("open", None, 10), ("reserve", "a", 5), ("charge", "a", 6)], "Entry 3 .* more than its job reserved"),
        ([("open", None, 10), ("charge", "a", 1)], "Entry 2 .* more than its job reserved"),
        ([("open", None, 10), ("reserve", "a", 5), ("settle", "a", 6)], "Entry 3 .* more than its job reserved"),
        ([("open", None, 10), ("reserve", "a", 5), ("charge", "b", 1)], "Entry 3 .* more than its job reserved"),
        ([("open", None, 10), ("recovered", "a", 11)], "Entry 2 .* exceeds the limit"),
        ([("open", None, 10), ("open", None, 10)], "Entry 2 .* in the wrong place"),
        ([("reserve", "a", 0)], "Entry 1 .* in the wrong place"),
        ([("open", None, 10), ("refund", "a", 5)], "Entry 2 .* unknown kind"),
    ],
)
def test_a_well_sealed_chain_that_spends_wrongly_is_refused(steps: list[Any], complaint: str) -> None:
    with pytest.raises(LedgerCorrupt, match=complaint):
        follow(chain(*steps))
