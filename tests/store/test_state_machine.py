"""Random histories of the whole store against the model: uploads, jobs, workers, crashes, backups, deletions.

DATALENS_STATE_MACHINE_HISTORIES sets how many per database (16 of up to 50 operations by default, 4 on PostgreSQL).
"""

import copy
import os
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from datalens_service.base.errors import DatalensError, LedgerCorrupt
from datalens_service.data.dataset import Schema
from datalens_service.privacy.accounting import limit_units
from datalens_service.services import budgets
from datalens_service.store.charge_log import ChargeLog, LogLine
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.account_summary import summarize_accounts
from datalens_service.store.ledger.recovery import check_against_log

from .backups import Backup, back_up, remove
from .books import DELTA, EPSILON, LEASE_SECONDS, assert_totals_add_up, new_job, verified
from .model import Books, Charge

LIMIT = limit_units(EPSILON, DELTA)
# A tenth of the budget, so that refusals are as frequent as successes.
SHARE = LIMIT // 10
RECENT = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5])
"""How many came after a data set, a job or a lease: most that is asked is of the newest, which is in use."""
FLAG = st.booleans()

Item = TypeVar("Item")


def chosen(items: list[Item], recent: int) -> Item:
    return items[max(0, len(items) - 1 - recent)]


class PowerCutError(RuntimeError):
    """Between the line in the log and the commit."""


class CuttingLog(ChargeLog):
    """Cuts the power after a line when told to."""

    cut_next = False

    def append(self, line: LogLine, checked: int) -> int:
        length = super().append(line, checked)
        if self.cut_next:
            self.cut_next = False
            raise PowerCutError
        return length


class StoreMachine(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model, and compares what came of it."""

    operations: ClassVar[int] = 0

    def __init__(self, new_url: Callable[[], str], folder: Path) -> None:
        super().__init__()
        self.log = CuttingLog(folder / f"{uuid4().hex}.log")
        self.database = Database(new_url(), self.log)
        self.books = Books(LIMIT)
        self.lines: list[Charge] = []
        self.drawn: dict[str, int] = {}
        self.hour = 0
        self.backup: tuple[Backup, Books] | None = None
        self.dataset_ids: list[str] = []
        self.job_ids: list[str] = []
        self.held: list[Lease] = []
        # Few histories would come by themselves as far as two workers.
        self.upload(frozenset({0, 1}), None)
        for _ in range(2):
            self.submit(0, 4, 2)
            self.claim(0)

    def teardown(self) -> None:
        self.audit()
        if self.backup is not None:
            self.backup[0].remove()
        remove(self.database)

    @rule(records=st.frozensets(st.integers(0, 7), min_size=2, max_size=3), payer=st.none() | RECENT)
    def upload(self, records: frozenset[int], payer: int | None) -> None:
        dataset_id = datasets.new_id()
        shares_budget_with = None if payer is None else chosen(self.dataset_ids, payer)
        self.compare(
            self.books.upload(dataset_id, records, shares_budget_with),
            lambda: datasets.create(
                self.database,
                dataset_id=dataset_id,
                name="x",
                schema=Schema(channels=1, height=4, width=4, class_names=("a",), num_units=len(records)),
                images=np.stack([np.eye(4, dtype=np.uint8)[..., None] * (record + 1) for record in sorted(records)]),
                format="npz",
                has_test=False,
                records_path="/nowhere",
                epsilon=EPSILON,
                delta=DELTA,
                shares_budget_with=shares_budget_with,
            ),
        )
        if dataset_id in self.books.datasets:
            self.dataset_ids.append(dataset_id)

    @rule(dataset=RECENT, shares=st.integers(1, 11), max_attempts=st.integers(1, 3))
    def submit(self, dataset: int, shares: int, max_attempts: int) -> None:
        """The id is the store's choice."""
        dataset_id, ledger_units = chosen(self.dataset_ids, dataset), min(shares * SHARE, LIMIT)
        expected = self.books.submit("next", dataset_id, ledger_units, max_attempts)
        found = self.outcome(lambda: new_job(self.database, dataset_id, ledger_units, max_attempts=max_attempts))
        if expected is None:
            self.books.jobs[found.id] = self.books.jobs.pop("next")
            self.job_ids.append(found.id)
        else:
            assert found is expected

    @rule(job=RECENT)
    def claim(self, job: int) -> None:
        """Deliver a job, perhaps again; after its lease ran out this is a take-over."""
        job_id = chosen(self.job_ids, job)
        expected = self.books.claim(job_id, self.hour)
        found = self.outcome(lambda: leases.claim(self.database, job_id, "worker", LEASE_SECONDS, now=self.clock))
        if isinstance(found, Lease):
            self.held.append(found)
            found = found.token
        assert found == expected

    @rule(
        which=RECENT, step=st.integers(0, 3), ledger_units=st.sampled_from([1, SHARE // 2, SHARE, 3 * SHARE]), kept=FLAG
    )
    def charge(self, which: int, step: int, ledger_units: int, kept: bool) -> None:
        """Pay for a step, and keep its sum unless the worker is lost before."""
        lease, number = chosen(self.held, which), len(self.lines)
        expected = self.books.charge(lease.job_id, lease.token, step, ledger_units, number)
        self.compare(expected, lambda: self.account(lease).charge(step, "votes", ledger_units))
        if expected is None:
            self.note(number, lease, ledger_units)
        if kept:
            noisy = np.array([lease.token, step], dtype=np.int64)
            expected = self.books.store(lease.job_id, lease.token, step)
            self.compare(expected, lambda: self.account(lease).store(step, noisy))

    @rule(which=RECENT, step=st.integers(0, 3))
    def power_cut_in_a_charge(self, which: int, step: int) -> None:
        """The line is in the log, the commit never happens; the next start finds it."""
        lease = chosen(self.held, which)
        number = len(self.lines)
        if copy.deepcopy(self.books).charge(lease.job_id, lease.token, step, SHARE, number) is not None:
            return
        self.log.cut_next = True
        with pytest.raises(PowerCutError):
            self.account(lease).charge(step, "votes", SHARE)
        self.note(number, lease, SHARE)
        self.restart()

    @rule(which=RECENT)
    def renew(self, which: int) -> None:
        lease = chosen(self.held, which)
        expected = self.books.renew(lease.job_id, lease.token, self.hour)
        self.compare(expected, lambda: leases.renew(self.database, lease, now=self.clock))
        self.compare(expected, lambda: leases.progress(self.database, lease, "training", 1, 2))

    @rule(which=RECENT, state=st.sampled_from([None, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]))
    def end(self, which: int, state: JobState | None) -> None:
        """Finish the job, or give it back."""
        lease = chosen(self.held, which)
        if state is None:
            expected = self.books.release(lease.job_id, lease.token)
            self.compare(expected, lambda: leases.give_back(self.database, lease))
        else:
            expected = self.books.finish(lease.job_id, lease.token, state)
            self.compare(expected, lambda: leases.finish(self.database, lease, state))

    @rule(which=RECENT, wish=st.sampled_from(["cancel", "pause", "resume"]))
    def ask(self, which: int, wish: str) -> None:
        job_id = chosen(self.job_ids, which)
        asking = {"cancel": jobs.request_cancel, "pause": jobs.request_pause, "resume": jobs.resume}[wish]
        self.compare(self.books.ask(wish, job_id), lambda: asking(self.database, job_id))

    @rule(swept=FLAG)
    def an_hour_passes(self, swept: bool) -> None:
        self.hour += 1
        if swept:
            self.books.expire(self.hour)
            leases.expire_leases(self.database, now=self.clock)

    @rule(dataset=RECENT, epsilon=st.sampled_from([EPSILON / 2, EPSILON, 1.5 * EPSILON, 2 * EPSILON]))
    def raise_limit(self, dataset: int, epsilon: float) -> None:
        """Frozen accounts of these histories lack room and nothing else, so they are raised as well."""
        dataset_id = chosen(self.dataset_ids, dataset)
        self.compare(
            self.books.raise_limit(dataset_id, limit_units(epsilon, DELTA)),
            lambda: budgets.raise_budget(self.database, dataset_id, epsilon, reason="more", actor="test"),
        )

    @rule(dataset=RECENT)
    def delete(self, dataset: int) -> None:
        dataset_id = chosen(self.dataset_ids, dataset)
        self.compare(self.books.delete(dataset_id), lambda: datasets.delete(self.database, dataset_id))

    @rule()
    def restart(self) -> None:
        """Every process ends; the next start audits."""
        self.database.dispose()
        self.audit()

    @rule()
    def back_up(self) -> None:
        if self.backup is not None:
            self.backup[0].remove()
        self.backup = (back_up(self.database), copy.deepcopy(self.books))

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore(self) -> None:
        """A backup that has forgotten data sets of the log is refused, and a newer one restored."""
        assert self.backup is not None
        copied, books = self.backup
        forgotten = {line.dataset for line in self.lines} - books.datasets.keys()
        newer = back_up(self.database) if forgotten else None
        copied.restore()
        if newer is None:
            self.books = copy.deepcopy(books)
            self.audit()
            return
        with pytest.raises(LedgerCorrupt, match="does not know"):
            check_against_log(self.database)
        newer.restore()
        newer.remove()

    @invariant()
    def totals_agree(self) -> None:
        type(self).operations += 1
        with self.database.session() as session:
            accounts = summarize_accounts(session, self.books.datasets)
        for dataset_id, dataset in self.books.datasets.items():
            account, found = self.books.accounts[dataset.account], accounts[dataset_id]
            assert (found.limit_units, found.reserved_units, found.charged_units) == (
                account.limit, account.reserved, account.charged
            )  # fmt: skip
            assert (found.frozen_reason is not None) == account.frozen
            # The point of it all: whatever may have been drawn is counted, or nothing more can be drawn.
            assert account.frozen or found.charged_units >= self.drawn.get(dataset.account, 0)

    @invariant()
    def jobs_agree(self) -> None:
        stored = {job.id: job for job in jobs.list_jobs(self.database, limit=200).items}
        assert stored.keys() == self.books.jobs.keys()
        for job_id, job in self.books.jobs.items():
            found = stored[job_id]
            assert (found.state, found.lease_token, found.attempts) == (job.state, job.token, job.attempts)
            assert (found.reserved_units, found.charged_units) == (job.reserved, job.charged)
            assert (found.cancel_requested, found.pause_requested) == (job.cancel, job.pause)
        assert_totals_add_up(self.database)

    def audit(self) -> None:
        check_against_log(self.database)
        self.books.audit(self.lines)
        for dataset_id in self.books.datasets:
            verified(self.database, dataset_id)
        for job_id, job in self.books.jobs.items():
            replayed = {step: JobAccount(self.database, job_id, 0).replay(step) for step in range(4)}
            kept = {step: sum_.tolist() for step, sum_ in replayed.items() if sum_ is not None}
            assert kept == {step: [token, step] for step, token in job.stored.items()}

    def note(self, number: int, lease: Lease, ledger_units: int) -> None:
        job = self.books.jobs[lease.job_id]
        account = job.account
        self.lines.append(Charge(number, account, job.dataset, lease.job_id, ledger_units, lease.token))
        self.drawn[account] = self.drawn.get(account, 0) + ledger_units

    def account(self, lease: Lease) -> JobAccount:
        return JobAccount(self.database, lease.job_id, lease.token)

    @property
    def clock(self) -> datetime:
        return datetime(2026, 11, 20, tzinfo=UTC) + timedelta(hours=self.hour)

    def compare(self, expected: type[Exception] | None, action: Callable[[], Any]) -> None:
        found = self.outcome(action)
        assert (found if isinstance(found, type) else None) is expected

    def outcome(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except DatalensError as error:
            return type(error)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Says how many histories came out as they should."""

    def tell(histories: int) -> None:
        record_property("ledger operations", StoreMachine.operations)
        with capsys.disabled():
            sys.stdout.write(f" {StoreMachine.operations} operations in {histories} histories, no divergence ")

    return tell


def test_random_histories_on_sqlite(sqlite_template: Path, store_path: Path, report: Callable[[int], None]) -> None:
    def new_url() -> str:
        return f"sqlite:///{shutil.copy(sqlite_template, store_path / f'{uuid4().hex}.db')}"

    report(_run(new_url, store_path, 16))


@pytest.mark.postgres
def test_random_histories_on_postgresql(postgresql: Any, store_path: Path, report: Callable[[int], None]) -> None:
    report(_run(lambda: postgresql.new_database("datalens_template"), store_path, 4))


def _run(new_url: Callable[[], str], folder: Path, histories: int) -> int:
    """Number of histories."""
    StoreMachine.operations = 0
    histories = int(os.environ.get("DATALENS_STATE_MACHINE_HISTORIES", histories))
    chosen = settings(
        max_examples=histories, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_machine(lambda: StoreMachine(new_url, folder), settings=chosen)
    assert StoreMachine.operations >= 5 * histories
    return histories
