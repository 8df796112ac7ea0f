"""Detectors on the durable account, with a real SQLite database and its log, and on what is declared public."""

import functools
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy import make_url

from datalens_service.base.errors import (
    BudgetExceeded,
    DatalensError,
    InvalidDataset,
    InvalidSpec,
    LedgerCorrupt,
    StaleLease,
    StateConflict,
)
from datalens_service.data.dataset import Images
from datalens_service.jobs import execute
from datalens_service.privacy import accounting
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.services import pricing
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.recovery import check_against_log
from deployments.deployment import Deployment
from store.books import (
    by_hand,
    charge_until_refused,
    claimed,
    images,
    journal_of,
    later,
    new_dataset,
    new_job,
    read_account,
    running_job,
    schema,
    state_of,
    verified,
    without_guards,
)

from .alarm import expect, refused
from .cases import CASES

_NOISY = np.arange(6, dtype=np.int64).reshape(2, 3)


def charges_are_on_disk_before_the_draw(rng: np.random.Generator) -> None:
    """R40: at the moment of the draw another process finds the charge, in the database and in the log."""
    case = CASES[0]
    data, cost = case.make(rng), case.mechanism.cost()
    with _database() as database:
        dataset, _, account = running_job(database, ledger_units=2 * cost)

        class Witness(NoiseSource):  # type: ignore[misc]
            def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
                other = Database(database.url)
                expect(state_of(other, dataset.id).charged_units == cost, "a charge is committed before its draw")
                other.dispose()
                logged = sum(line.ledger_units for line in ChargeLog(database.log.path).read())
                expect(logged == cost, "a charge is in the log before its draw")
                return super().discrete_gaussian(shape, noise_stddev)

        case.mechanism.release(lambda *_batch: data, step=0, account=account, noise=Witness())
        expect(account.replay(0) is not None, "the noisy sum is stored")
        verified(database, dataset.id)


def a_resumed_job_pays_for_what_it_draws(_rng: np.random.Generator) -> None:
    """R41: a step charged but not stored is charged again; a stored one is replayed; spend survives (B11)."""
    with _database() as database:
        dataset, lease, account = running_job(database, ledger_units=1000)
        account.charge(0, "votes", 100)
        account.store(0, _NOISY)
        account.charge(1, "votes", 100)
        leases.expire_leases(database, now=later())
        second = read_account(database, claimed(database, lease.job_id))
        found = second.replay(0)
        expect(found is not None and np.array_equal(found, _NOISY), "a stored step is replayed after a crash")
        expect(state_of(database, dataset.id).charged_units == 200, "what was spent survives a crash")
        second.charge(1, "votes", 100)
        expect(state_of(database, dataset.id).charged_units == 300, "a step that may have been drawn is charged again")
        second.store(1, _NOISY)
        with refused(StateConflict, "a sum that was not paid for is not kept"):
            second.store(2, _NOISY)
        verified(database, dataset.id)


def nothing_drawn_is_refunded(_rng: np.random.Generator) -> None:
    """R45, R47: failing, cancelling and deleting return what was not spent, and only that."""
    with _database() as database:
        dataset, lease, account = running_job(database, ledger_units=1000)
        account.charge(0, "votes", 300)
        leases.finish(database, lease, JobState.FAILED)
        after = state_of(database, dataset.id)
        expect((after.charged_units, after.reserved_units) == (300, 0), "an ended job keeps its charges")
        limit = after.limit_units
        with refused(BudgetExceeded, "what was spent cannot be reserved again"):
            new_job(database, dataset.id, limit - 299)
        datasets.delete(database, dataset.id)
        expect(state_of(database, dataset.id).charged_units == 300, "deleting a data set keeps what was spent")
        verified(database, dataset.id)


def workers_that_were_replaced_cannot_draw(_rng: np.random.Generator) -> None:
    """R42: fencing; a worker that wakes up late can neither charge nor store."""
    with _database() as database:
        dataset, lease, stale = running_job(database, ledger_units=1000)
        stale.charge(0, "votes", 100)
        leases.expire_leases(database, now=later())
        claimed(database, lease.job_id)
        with refused(StaleLease, "a replaced worker cannot charge"):
            stale.charge(1, "votes", 100)
        with refused(StaleLease, "a replaced worker cannot store"):
            stale.store(0, _NOISY)
        expect(state_of(database, dataset.id).charged_units == 100, "a replaced worker changes nothing")


def budgets_are_never_overspent(_rng: np.random.Generator) -> None:
    """R39: reserved and charged together stay within the limit; a job stays within its reservation."""
    with _database() as database:
        dataset, _, account = running_job(database, ledger_units=1000)
        with refused(BudgetExceeded, "a charge stays within the job's reservation"):
            account.charge(0, "votes", 1001)
        account.charge(0, "votes", 600)
        limit = state_of(database, dataset.id).limit_units
        with refused(BudgetExceeded, "reservations stay within the limit"):
            new_job(database, dataset.id, limit - 999)
        new_job(database, dataset.id, limit - 1000)
        expect(state_of(database, dataset.id).remaining_units == 0, "the whole budget can be used")
        verified(database, dataset.id)


def restored_backups_bring_no_budget_back(_rng: np.random.Generator) -> None:
    """R49: after yesterday's copy is put back, the log still knows what was spent since."""
    with _database() as database:
        dataset, _, account = running_job(database, ledger_units=1000)
        account.charge(0, "votes", 100)
        copy = _copy(database)
        account.charge(1, "votes", 250)
        database.dispose()
        _put_back(copy, database)
        frozen = check_against_log(database)
        known = state_of(database, dataset.id).charged_units == 350
        expect(known or frozen, "a restored backup knows again what was spent, or is frozen")


def databases_restored_under_a_running_job_are_noticed(_rng: np.random.Generator) -> None:
    """R49: no start comes between; all that was accepted before and after still fits into the budget."""
    with _database() as database:
        dataset = new_dataset(database)
        limit = state_of(database, dataset.id).limit_units
        account = read_account(database, claimed(database, new_job(database, dataset.id, limit).id))
        copy, share = _copy(database), limit // 3
        for step in range(2):
            account.charge(step, "votes", share)
        _put_back(copy, database)
        drawn = 2 + charge_until_refused(lambda step: account.charge(step, "votes", share), 2)
        expect(drawn * share <= limit, "what a running job spent before its database was restored stays spent")


def frozen_accounts_state_what_the_log_knows(_rng: np.random.Generator) -> None:
    """R49: where the log has charges without room, the statement is not of the journal alone."""
    with _database() as database:
        dataset, _, account = running_job(database, ledger_units=1000)
        account.charge(0, "votes", 100)
        line = database.log.read()[0]
        lost = replace(line, ledger_units=2 * state_of(database, dataset.id).limit_units, hash="0" * 64)
        database.log.restore([lost], 0)
        expect(bool(check_against_log(database)), "an account without room for its charges is frozen")
        found = state_of(database, dataset.id)
        expect(
            found.figures().epsilon_spent >= found.convert_to_epsilon(lost.ledger_units),
            "a frozen account states what was spent",
        )
        expect(found.figures().epsilon_remaining == 0, "nothing remains of a frozen account")


def uploading_again_brings_no_fresh_budget(_rng: np.random.Generator) -> None:
    """R48: the same records, reordered, deleted before or mixed with others, keep their account."""
    with _database() as database:
        dataset, lease, account = running_job(database, ledger_units=1000)
        account.charge(0, "votes", 400)
        leases.finish(database, lease, JobState.SUCCEEDED)
        datasets.delete(database, dataset.id)
        mixed = np.concatenate([images(seed=9, count=30), images()[5:6]])
        for records in (images(), images()[::-1], mixed):
            again = new_dataset(database, records)
            expect(again.account_id == dataset.account_id, "records that were uploaded before keep their account")
            expect(state_of(database, again.id).charged_units == 400, "and what was spent on them")
        with refused(InvalidDataset, "records come back with the privacy units they had, or not at all"):
            new_dataset(database, images()[:4], unit_ids=np.array([7, 7, 8, 8]))
        journal = {entry.kind for entry in journal_of(database, dataset.id)}
        expect("join" in journal and "delete" in journal, "the journal says so")


def private_records_never_pass_for_public(_rng: np.random.Generator) -> None:
    """R53: neither when a job is priced, nor when it runs, nor when images are declared public."""
    with _database() as database:
        private, other = new_dataset(database, images(seed=1)), new_dataset(database, images(seed=2))
        public = _declared(database, images(seed=3))
        tenant = private.tenant_id
        allowed = pricing.check_public_data(database, tenant, public.id, private)
        expect(allowed.id == public.id, "what was declared public may be used")
        with refused(InvalidSpec, "a private data set is no start"):
            pricing.check_public_data(database, tenant, other.id, private)
        with refused(InvalidDataset, "a private image is not declared public later"):
            _declared(database, np.concatenate([images(seed=4), images(seed=1)[3:4]]))
        shared = new_dataset(database, np.concatenate([images(seed=3)[:10], images(seed=5)[:10]]))
        with refused(InvalidSpec, "images that are in both data sets are no start"):
            pricing.check_public_data(database, tenant, public.id, shared)
        job = new_job(database, private.id, 1)
        with refused(DatalensError, "a worker asks again"):
            execute._public(database, other.id, job)


def altered_journals_are_noticed(_rng: np.random.Generator) -> None:
    """R52: spends made smaller, with and without the totals, and a sum nobody paid for, by hand."""
    less = "SET charged_units = charged_units - 50, reserved_units = reserved_units + 50"
    lowered = "UPDATE ledger_entries SET units = units - 50 WHERE kind = 'charge' AND step = 1"
    forgeries: dict[str, tuple[str, ...]] = {
        "a lowered charge": (lowered,),
        "a lowered charge with totals to match": (lowered, f"UPDATE accounts {less}", f"UPDATE reservations {less}"),
        "a removed charge": ("DELETE FROM ledger_entries WHERE kind = 'charge' AND step = 1",),
        "a lowered spend": (f"UPDATE accounts {less}",),
        "a draw without a charge": ("UPDATE aggregates SET step = 7",),
    }
    for forgery, statements in forgeries.items():
        with _database() as database:
            dataset, _, account = running_job(database, ledger_units=1000)
            for step in range(3):
                account.charge(step, "votes", 100)
            account.store(0, _NOISY)
            verified(database, dataset.id)
            for table in ("ledger_entries", "accounts", "reservations", "aggregates"):
                without_guards(database, table)
            by_hand(database, *statements)
            with refused(LedgerCorrupt, f"{forgery} is noticed"):
                verified(database, dataset.id)


def accounts_add_up_exactly(_rng: np.random.Generator) -> None:
    """Two jobs of ε = 1 on one data set spend 1.4652, over the whole life of the data set."""
    with _database() as database:
        dataset = new_dataset(database, epsilon=1.5)
        each = accounting.limit_units(1.0, 1e-5)
        for _ in range(2):
            job = new_job(database, dataset.id, each)
            lease = claimed(database, job.id)
            read_account(database, lease).charge(0, "votes", each)
            leases.finish(database, lease, JobState.SUCCEEDED)
            expect(jobs.get(database, job.id).charged_units == each, "a job knows what it spent")
        found = state_of(database, dataset.id).epsilon_spent
        expect(1.4651 < found <= 1.4653, "two jobs of ε = 1 spend 1.4652")


def _declared(database: Database, records: Images) -> StoredDataset:
    declared = schema(len(records)).model_copy(update={"records_are_public": True})
    return new_dataset(database, records, schema=declared)


def _copy(database: Database) -> Path:
    """A backup, taken while the database is in use."""
    path = Path(str(make_url(database.url).database))
    copy = path.with_suffix(".backup")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def _put_back(copy: Path, database: Database) -> None:
    """Restore it into the file that processes have open."""
    path = str(make_url(database.url).database)
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


@contextmanager
def _database() -> Generator[Database]:
    """A fresh migrated SQLite database with a ledger log."""
    with tempfile.TemporaryDirectory(prefix="gate") as folder:
        path = Path(folder) / "datalens.db"
        path.write_bytes(migrated())
        database = Database(f"sqlite:///{path}", ChargeLog(Path(folder) / "ledger.log"))
        try:
            yield database
        finally:
            database.dispose()


@contextmanager
def deployment() -> Generator[Deployment]:
    """A deployment of its own, with such a database."""
    with _database() as database:
        yield Deployment(database, database.log.path.parent)


@functools.cache
def migrated() -> bytes:
    """An empty database; made once, migrations take longer than a detector."""
    with tempfile.TemporaryDirectory(prefix="gate") as folder:
        path = Path(folder) / "datalens.db"
        database = Database(f"sqlite:///{path}")
        database.migrate()
        database.dispose()
        return path.read_bytes()
