from collections.abc import Callable, Collection
from contextlib import suppress

import numpy as np
import pytest
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import (
    BudgetExceeded,
    InvalidDataset,
    InvalidDelta,
    InvalidSpec,
    NotFound,
    StateConflict,
)
from datalens_service.base.wording import Voice, spoken_to
from datalens_service.data.notices import Notices
from datalens_service.privacy.accounting import default_delta
from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.fingerprints import KnownRecord, fingerprints
from datalens_service.store.datasets.uploads import Joined, find_joined
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import AccountRow, RecordFingerprintRow

from .books import (
    DELTA,
    EPSILON,
    Images,
    claimed,
    images,
    journal_of,
    new_dataset,
    new_job,
    read_account,
    schema,
    state_of,
    verified,
)


def spend(database: Database, dataset_id: str, units: int) -> None:
    lease = claimed(database, new_job(database, dataset_id, units).id)
    read_account(database, lease).charge(0, "votes", units)
    leases.finish(database, lease, JobState.SUCCEEDED)


def test_a_data_set_is_kept_as_it_was_declared(database: Database) -> None:
    dataset = new_dataset(database)
    assert dataset == datasets.get(database, dataset.id)
    assert dataset.schema == schema()
    assert (dataset.state, dataset.format, dataset.has_test) == (DatasetState.READY, "npz", False)


def test_every_data_set_has_a_secret_key_of_its_own(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database)
    assert first.partition_key is not None
    assert len(first.partition_key) == 32
    assert first.partition_key != second.partition_key
    assert "key" not in repr(first)


def test_delta_defaults_to_what_n_calls_for(database: Database) -> None:
    assert state_of(database, new_dataset(database, delta=None).id).delta == default_delta(20)


def test_a_first_upload_has_to_name_its_budget(database: Database) -> None:
    with pytest.raises(InvalidSpec) as refused:
        new_dataset(database, epsilon=None)
    for voice, name in (
        (Voice.REST, "epsilon"),
        (Voice.PAGE, "“Lifetime privacy budget ε”"),
        (Voice.COMMAND_LINE, "--epsilon"),
    ):
        with spoken_to(voice):
            assert refused.value.detail.startswith(f"Set {name}, for example to 10: ")
    assert datasets.list_datasets(database).items == ()
    # Nothing was remembered: the next attempt is a first upload again.
    new_dataset(database)


def test_a_delta_of_one_record_or_more_is_refused(database: Database) -> None:
    with pytest.raises(InvalidDelta):
        new_dataset(database, delta=1 / 20)


REUPLOADS = {
    "the same": lambda records: records,
    "in another order": lambda records: records[::-1],
    "one record of it": lambda records: np.concatenate([records[7:8], images(seed=5, count=30)]),
    "a part of it": lambda records: records[:5],
    "with duplicates": lambda records: np.concatenate([records, records]),
    "in another memory layout": lambda records: np.asfortranarray(records),
}


@pytest.mark.both_databases
@pytest.mark.parametrize("how", sorted(REUPLOADS))
def test_a_second_upload_of_known_records_inherits_their_spend(database: Database, how: str) -> None:
    first = new_dataset(database)
    spend(database, first.id, 1000)
    again = new_dataset(database, REUPLOADS[how](images()), epsilon=None, delta=None)
    assert state_of(database, again.id) == state_of(database, first.id)
    assert state_of(database, again.id).charged_units == 1000
    assert datasets.linked(database, again.id) == (first.id,)
    assert journal_of(database, first.id)[-1].kind == "join"


def test_records_link_through_a_third_upload(database: Database) -> None:
    first = new_dataset(database)
    bridge = new_dataset(database, np.concatenate([images()[:1], images(seed=1)]))
    third = new_dataset(database, images(seed=1)[3:9])
    assert set(datasets.linked(database, third.id)) == {first.id, bridge.id}


def test_other_records_have_a_budget_of_their_own(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    spend(database, first.id, 1000)
    assert state_of(database, second.id).charged_units == 0
    assert datasets.linked(database, second.id) == ()


def test_a_default_delta_is_not_taken_over_from_the_account(database: Database) -> None:
    """Jobs state it: it would tell that the upload shares a record with one of that δ."""
    new_dataset(database, epsilon=EPSILON, delta=1e-6)
    with pytest.raises(StateConflict, match="name this δ") as error:
        new_dataset(database, images()[:5], epsilon=None, delta=None)
    assert error.value.extra == {"epsilon": EPSILON, "delta": 1e-6}
    new_dataset(database, images()[:5], epsilon=None, delta=1e-6)


def test_what_an_upload_joined_is_told(database: Database) -> None:
    def tell(dataset: StoredDataset) -> Joined | None:
        with database.session() as session:
            return find_joined(session, dataset.id, dataset.known_records)

    first = new_dataset(database)
    assert (first.known_records, tell(first)) == (0, None)
    second = new_dataset(database, np.concatenate([images()[:3], images(5)]), epsilon=None)
    told = tell(second)
    assert told is not None
    assert (told.known_records, told.dataset_ids) == (3, (first.id,))
    assert (told.epsilon, told.delta, told.epsilon_spent, told.epsilon_remaining) == (EPSILON, DELTA, 0, EPSILON)
    assert tell(first) is None


@pytest.mark.parametrize("changes", [{"epsilon": 2.0}, {"epsilon": 0.5}, {"delta": 1e-6}])
@pytest.mark.parametrize("named", [False, True])
def test_a_second_upload_can_not_change_the_budget(database: Database, changes: dict[str, float], named: bool) -> None:
    first = new_dataset(database)
    with pytest.raises(StateConflict, match="have a budget already") as error:
        new_dataset(database, images(seed=named), shares_budget_with=first.id if named else None, **changes)
    assert error.value.extra == {"epsilon": EPSILON, "delta": DELTA}
    assert datasets.linked(database, first.id) == ()


def test_an_inherited_delta_must_fit_the_larger_data_set(database: Database) -> None:
    new_dataset(database, images(count=10), delta=0.05)
    with pytest.raises(InvalidDelta):
        new_dataset(database, images(count=30), epsilon=None, delta=None)


def test_records_of_several_accounts_are_refused_and_nothing_changes(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    before = (journal_of(database, first.id), journal_of(database, second.id), _count(database, RecordFingerprintRow))
    mixed = np.concatenate([images()[:1], images(seed=1)[:1], images(seed=2)])
    with pytest.raises(InvalidDataset, match="upload the parts separately"):
        new_dataset(database, mixed)
    after = (journal_of(database, first.id), journal_of(database, second.id), _count(database, RecordFingerprintRow))
    assert after == before


def blank(count: int = 1, value: int = 0) -> Images:
    return np.full((count, 6, 5, 1), value, np.uint8)


def test_a_blank_image_alone_ties_no_upload_to_a_budget_that_was_not_meant(database: Database) -> None:
    first = new_dataset(database, np.concatenate([images(), blank()]))
    others = np.concatenate([images(seed=1), blank()])
    with pytest.raises(StateConflict, match="single colour"):
        new_dataset(database, others)
    assert datasets.linked(database, first.id) == ()
    apart = new_dataset(database, others[:-1])
    assert datasets.linked(database, apart.id) == ()


def test_a_blank_image_keeps_its_budget_where_the_link_is_meant(database: Database) -> None:
    first = new_dataset(database, np.concatenate([images(), blank()]))
    spend(database, first.id, 1000)
    meant = np.concatenate([images(seed=1), blank()])
    for changes in ({"shares_budget_with": first.id}, {"epsilon": None, "delta": None}):
        linked = new_dataset(database, meant, **changes)
        assert (linked.account_id, state_of(database, linked.id).charged_units) == (first.account_id, 1000)


def test_an_upload_of_blank_images_known_before_comes_back_to_its_budget(database: Database) -> None:
    records = np.concatenate([blank(value=value) for value in range(4)])
    assert new_dataset(database, records).account_id == new_dataset(database, records).account_id


def test_what_an_upload_shares_is_noted(database: Database) -> None:
    notices = Notices()
    first = new_dataset(database, np.concatenate([images(), blank()]), notices=notices)
    assert notices.collected() == ()
    again = np.concatenate([images()[:3], blank(), images(seed=1)])
    assert new_dataset(database, again, notices=notices).account_id == first.account_id
    counts = {notice.code.value: notice.count for notice in notices.collected()}
    assert counts == {"shares_records": 4, "shares_constant_images": 1}


def test_data_that_grows_has_one_budget_from_the_start(database: Database) -> None:
    first = new_dataset(database)
    spend(database, first.id, 1000)
    second = new_dataset(database, images(seed=1), shares_budget_with=first.id, epsilon=None, delta=None)
    assert second.account_id == first.account_id
    assert journal_of(database, first.id)[-1].kind == "join"
    spend(database, second.id, 300)
    together = new_dataset(database, np.concatenate([images(), images(seed=1), images(seed=2)]))
    assert set(datasets.linked(database, together.id)) == {first.id, second.id}
    spend(database, together.id, 200)
    for dataset in (first, second, together):
        assert state_of(database, dataset.id).charged_units == 1500
    verified(database, together.id)


def test_an_account_that_is_named_is_that_of_every_known_record(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    with pytest.raises(InvalidDataset, match="use shares_budget_with"):
        new_dataset(database, np.concatenate([images(seed=1), images(seed=2)]), shares_budget_with=first.id)
    assert datasets.linked(database, first.id) == datasets.linked(database, second.id) == ()


def test_an_account_of_a_deleted_data_set_goes_on(database: Database) -> None:
    first = new_dataset(database)
    spend(database, first.id, 1000)
    datasets.delete(database, first.id)
    again = new_dataset(database)
    named = new_dataset(database, images(seed=1), shares_budget_with=first.id)
    for later in (again, named):
        assert state_of(database, later.id).charged_units == 1000


def test_an_account_of_nobody_or_of_another_tenant_does_not_exist(database: Database) -> None:
    first = new_dataset(database)
    other = tenants.create(database, "clinic").id
    for changes in ({"shares_budget_with": "ds_0"}, {"shares_budget_with": first.id, "tenant_id": other}):
        with pytest.raises(NotFound, match="no such data set"):
            new_dataset(database, images(seed=1), **changes)
    assert _count(database, RecordFingerprintRow) == 20


@pytest.mark.parametrize("seed", range(3))
def test_no_record_is_charged_more_than_its_account_holds(database: Database, seed: int) -> None:
    """Uploads that overlap and name accounts at random: charges of every data set a record is in, against one limit."""
    rng = np.random.default_rng(seed)
    pool, members, limit = images(count=12), {}, 0
    for _ in range(12):
        rows = rng.choice(12, rng.integers(2, 6), replace=False)
        named = str(rng.choice(sorted(members))) if members and rng.random() < 0.5 else None
        with suppress(InvalidDataset):
            members[new_dataset(database, pool[rows], shares_budget_with=named).id] = set(rows.tolist())
    for dataset_id in rng.permutation(sorted(members) * 3):
        limit = state_of(database, dataset_id).limit_units
        with suppress(BudgetExceeded):
            spend(database, dataset_id, int(rng.integers(1, limit // 2)))
    charged = {name: sum(job.charged_units for job in jobs_of(database, name)) for name in members}
    for record in range(12):
        assert sum(charged[name] for name, rows in members.items() if record in rows) <= limit


def jobs_of(database: Database, dataset_id: str) -> list[jobs.Job]:
    return [job for job in jobs.list_jobs(database, limit=100).items if job.dataset_id == dataset_id]


def test_many_records_are_all_remembered(database: Database) -> None:
    new_dataset(database, images(count=2500))
    assert _count(database, RecordFingerprintRow) == 2500
    last = new_dataset(database, images(count=2500)[-2:])
    assert len(datasets.linked(database, last.id)) == 1
    assert _count(database, AccountRow) == 1


@pytest.mark.both_databases
def test_nobody_waits_for_an_upload_of_many_records_one_by_one(database: Database) -> None:
    """Between two statements a driver lets other threads go first; meanwhile, nobody else can write."""
    records = images(count=30_000)
    units = np.arange(30_000) % 7
    before, statements = 0, list[str]()
    event.listen(
        database._engine,
        "before_cursor_execute",
        lambda *told: statements.append(f"{told[2]} {'one by one' if told[-1] else ''}"),
    )
    for _ in range(2):
        new_dataset(database, records, unit_ids=units, delta=1e-6)
        assert not [statement for statement in statements if statement.endswith("one by one")]
        assert len(statements) - before < 40
        before = len(statements)
    with database.session() as session:
        assert session.scalar(select(func.count()).select_from(RecordFingerprintRow)) == len(records)


def test_two_uploads_at_once_share_an_account(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one comes in after this one has looked, and before it decides."""
    known, looked = datasets.known_records, list[int]()

    def look_late(session: Session, prints: Collection[bytes]) -> dict[bytes, KnownRecord]:
        found = known(session, prints)
        looked.append(len(found))
        if len(looked) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(datasets, "known_records", known)
                first.append(new_dataset(database))
        return found

    first = list[StoredDataset]()
    monkeypatch.setattr(datasets, "known_records", look_late)
    second = new_dataset(database)
    assert looked == [0, 20]
    assert second.account_id == first[0].account_id


def test_deletion_leaves_a_tombstone_and_the_spend(database: Database) -> None:
    dataset = new_dataset(database)
    spend(database, dataset.id, 1000)
    deleted = datasets.delete(database, dataset.id)
    assert (deleted.state, deleted.partition_key) == (DatasetState.DELETED, None)
    assert deleted.deleted_at is not None
    assert datasets.get(database, dataset.id) == deleted
    assert state_of(database, dataset.id).charged_units == 1000
    assert journal_of(database, dataset.id)[-1].kind == "delete"
    verified(database, dataset.id)


def test_deleting_twice_is_deleting_once(database: Database) -> None:
    dataset = new_dataset(database)
    first = datasets.delete(database, dataset.id)
    assert datasets.delete(database, dataset.id) == first
    assert [entry.kind for entry in journal_of(database, dataset.id)] == ["open", "delete"]


@pytest.mark.parametrize("advance", [jobs.get, claimed, jobs.request_pause], ids=["queued", "running", "paused"])
def test_a_data_set_with_unfinished_jobs_is_not_deleted(database: Database, advance: Callable[..., object]) -> None:
    dataset = new_dataset(database)
    advance(database, new_job(database, dataset.id, 10).id)
    with pytest.raises(StateConflict, match="has not ended"):
        datasets.delete(database, dataset.id)
    assert datasets.get(database, dataset.id).state == DatasetState.READY


def test_jobs_of_a_linked_data_set_do_not_keep_this_one(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database)
    new_job(database, second.id, 10)
    assert datasets.delete(database, first.id).state == DatasetState.DELETED


def test_unknown_data_sets_are_not_found(database: Database) -> None:
    for operation in (datasets.get, datasets.delete, datasets.linked, state_of, journal_of):
        with pytest.raises(NotFound):
            operation(database, "ds_of_nobody")


@pytest.mark.both_databases
def test_a_list_walks_through_all_data_sets_newest_first(database: Database) -> None:
    made = [new_dataset(database, images(seed=seed)).id for seed in range(3)]
    page = datasets.list_datasets(database, limit=2)
    rest = datasets.list_datasets(database, limit=2, cursor=page.next_cursor)
    assert [found.id for found in page.items + rest.items] == made[::-1]
    assert rest.next_cursor is None


def test_fingerprints_depend_on_pixels_shape_and_key_alone() -> None:
    records = images(count=3)
    prints = fingerprints(b"k" * 32, records)
    assert len(prints) == 3
    assert all(len(fingerprint) == 16 for fingerprint in prints)
    assert fingerprints(b"k" * 32, records.copy()) == prints
    assert not fingerprints(b"l" * 32, records).keys() & prints.keys()
    assert not fingerprints(b"k" * 32, records.reshape(3, 5, 6, 1)).keys() & prints.keys()
    for pixel in (0, 17, 29):
        changed = records.copy()
        changed.reshape(3, -1)[0, pixel] ^= 1
        assert len(fingerprints(b"k" * 32, changed).keys() & prints.keys()) == 2


def test_fingerprints_are_no_plain_hashes_of_the_pixels(database: Database) -> None:
    """Whoever reads the database can not test whether a known image is in it."""
    import hashlib

    new_dataset(database)
    plain = {hashlib.sha256(image.tobytes()).digest()[:16] for image in images()}
    with database.session() as session:
        assert not plain & set(session.scalars(select(RecordFingerprintRow.fingerprint)))


def _count(database: Database, table: type) -> int:
    with database.session() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


PATIENTS = np.arange(20, dtype=np.int64) // 4


def test_records_of_the_same_units_inherit_their_spend(database: Database) -> None:
    first = new_dataset(database, unit_ids=PATIENTS)
    spend(database, first.id, 1000)
    again = new_dataset(database, images()[::-1], unit_ids=PATIENTS[::-1], epsilon=None, delta=None)
    part = new_dataset(database, images()[4:7], unit_ids=PATIENTS[4:7], epsilon=None, delta=None)
    for dataset in (again, part):
        assert state_of(database, dataset.id).charged_units == 1000


OTHER_UNITS = {
    "single records after patients": (PATIENTS, None),
    "patients after single records": (None, PATIENTS),
    "other patients": (PATIENTS, PATIENTS + 1),
    "patients joined": (PATIENTS, PATIENTS // 2),
}


@pytest.mark.parametrize("how", sorted(OTHER_UNITS))
def test_records_do_not_come_back_with_other_units(database: Database, how: str) -> None:
    before, after = OTHER_UNITS[how]
    first = new_dataset(database, unit_ids=before)
    with pytest.raises(InvalidDataset, match="other privacy units"):
        new_dataset(database, images()[::-1], unit_ids=None if after is None else after[::-1])
    assert datasets.linked(database, first.id) == ()
    # Nothing was remembered of the refused upload.
    new_dataset(database, unit_ids=before)


def test_equal_records_of_two_units_may_come_back_as_they_were(database: Database) -> None:
    twice = np.concatenate([images(), images()[:1]])
    units = np.append(PATIENTS, 99)
    first = new_dataset(database, twice, unit_ids=units)
    assert datasets.linked(database, new_dataset(database, twice[::-1], unit_ids=units[::-1]).id) == (first.id,)
