"""What the store should do, in plain arithmetic: no database, no hashes, no locks; a lease holds for an hour.

Each operation returns what it should return, or the class of the error it should raise; then nothing changed.
"""

from dataclasses import dataclass, field

from datalens_service.base.errors import (
    BudgetExceeded,
    InvalidDataset,
    LedgerCorrupt,
    NotFound,
    StaleLease,
    StateConflict,
)

Error = type[Exception]
OPEN = ("queued", "running", "paused")


@dataclass
class Account:
    limit: int
    reserved: int = 0
    charged: int = 0
    frozen: bool = False

    @property
    def remaining(self) -> int:
        return self.limit - self.reserved - self.charged


@dataclass
class Dataset:
    account: str
    deleted: bool = False


@dataclass
class Job:
    dataset: str
    account: str
    reserved: int
    max_attempts: int
    state: str = "queued"
    charged: int = 0
    token: int = 0
    attempts: int = 0
    hour: int = 0
    cancel: bool = False
    pause: bool = False
    paid: set[tuple[int, int]] = field(default_factory=set)
    stored: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Charge:
    """One line of the log; `number` tells equal lines apart."""

    number: int
    account: str
    dataset: str
    job: str
    ledger_units: int
    token: int


@dataclass
class Books:
    """Everything the database knows."""

    limit: int
    records: dict[int, str] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)

    def upload(self, dataset: str, records: frozenset[int], payer: str | None = None) -> Error | None:
        owners = {self.records[record] for record in records if record in self.records}
        if payer is not None:
            if payer not in self.datasets:
                return NotFound
            owners.add(self.datasets[payer].account)
        if len(owners) > 1:
            return InvalidDataset
        account = owners.pop() if owners else dataset
        # Uploads name the first budget; an account that was raised since has another.
        if account in self.accounts and self.accounts[account].limit != self.limit:
            return StateConflict
        self.accounts.setdefault(account, Account(self.limit))
        self.records.update(dict.fromkeys(records, account))
        self.datasets[dataset] = Dataset(account)
        return None

    def raise_limit(self, dataset: str, limit: int) -> Error | None:
        if dataset not in self.datasets:
            return NotFound
        account = self.accounts[self.datasets[dataset].account]
        if limit <= account.limit:
            return StateConflict
        account.limit = limit
        return None

    def submit(self, job: str, dataset: str, ledger_units: int, max_attempts: int) -> Error | None:
        if dataset not in self.datasets:
            return NotFound
        account = self.accounts[self.datasets[dataset].account]
        if self.datasets[dataset].deleted:
            return StateConflict
        if account.frozen:
            return LedgerCorrupt
        if ledger_units > account.remaining:
            return BudgetExceeded
        account.reserved += ledger_units
        self.jobs[job] = Job(dataset, self.datasets[dataset].account, ledger_units, max_attempts)
        return None

    def claim(self, job_id: str, hour: int) -> Error | int | None:
        if job_id not in self.jobs:
            return NotFound
        job = self.jobs[job_id]
        if hour > job.hour:
            self.give_up(job_id)
        if job.state != "queued":
            return None
        job.state = "running"
        job.token += 1
        job.attempts += 1
        job.hour = hour
        return job.token

    def charge(self, job_id: str, token: int, step: int, ledger_units: int, number: int) -> Error | None:
        if (refused := self._fenced(job_id, token, frozen=True)) is not None:
            return refused
        job = self.jobs[job_id]
        if step in job.stored:
            return StateConflict
        if ledger_units > job.reserved:
            return BudgetExceeded
        self._spend(job, ledger_units, ledger_units)
        job.paid.add((step, token))
        self.known.add(number)
        return None

    def store(self, job_id: str, token: int, step: int) -> Error | None:
        if (refused := self._fenced(job_id, token)) is not None:
            return refused
        job = self.jobs[job_id]
        if step in job.stored or (step, token) not in job.paid:
            return StateConflict
        job.stored[step] = token
        job.attempts = 0
        return None

    def renew(self, job_id: str, token: int, hour: int) -> Error | None:
        if (refused := self._fenced(job_id, token)) is not None:
            return refused
        self.jobs[job_id].hour = hour
        return None

    def finish(self, job_id: str, token: int, state: str) -> Error | None:
        if (refused := self._fenced(job_id, token)) is not None:
            return refused
        self._end(self.jobs[job_id], state)
        return None

    def release(self, job_id: str, token: int) -> Error | None:
        if (refused := self._fenced(job_id, token)) is not None:
            return refused
        self.jobs[job_id].attempts = max(0, self.jobs[job_id].attempts - 1)
        self.give_up(job_id)
        return None

    def ask(self, wish: str, job_id: str) -> Error | None:
        """For a job's end, a pause, or that it goes on."""
        if job_id not in self.jobs:
            return NotFound
        job = self.jobs[job_id]
        refused = {"cancel": False, "pause": job.cancel, "resume": not job.pause}[wish]
        if job.state not in OPEN or refused:
            return StateConflict
        if wish == "cancel":
            job.cancel = True
            if job.state != "running":
                self._end(job, "cancelled")
        else:
            job.pause = wish == "pause"
            if job.state != "running":
                job.state = "paused" if job.pause else "queued"
        return None

    def expire(self, hour: int) -> None:
        for job_id, job in self.jobs.items():
            if hour > job.hour:
                self.give_up(job_id)

    def give_up(self, job_id: str) -> None:
        """A running job has no worker any more."""
        job = self.jobs[job_id]
        if job.state != "running":
            return
        if job.cancel:
            self._end(job, "cancelled")
        elif job.attempts >= job.max_attempts:
            self._end(job, "failed")
        else:
            job.state = "paused" if job.pause else "queued"

    def delete(self, dataset_id: str) -> Error | None:
        if dataset_id not in self.datasets:
            return NotFound
        if any(job.dataset == dataset_id and job.state in OPEN for job in self.jobs.values()):
            return StateConflict
        self.datasets[dataset_id].deleted = True
        return None

    def audit(self, log: list[Charge]) -> None:
        """Book what only the log knows, in its order; an account without room for it is frozen."""
        for account in self.accounts.values():
            account.frozen = False
        for line in log:
            account = self.accounts[line.account]
            if line.number in self.known or account.frozen:
                continue
            job = self.jobs.get(line.job)
            from_reservation = min(line.ledger_units, job.reserved) if job else 0
            if line.ledger_units - from_reservation > account.remaining:
                account.frozen = True
                continue
            self._spend(job, line.ledger_units, from_reservation, account)
            if job and line.token > job.token:
                job.token = line.token + 1
            self.known.add(line.number)

    def _fenced(self, job_id: str, token: int, frozen: bool = False) -> Error | None:
        if job_id not in self.jobs:
            return NotFound
        job = self.jobs[job_id]
        if frozen and self.accounts[job.account].frozen:
            return LedgerCorrupt
        return None if (job.state, job.token) == ("running", token) else StaleLease

    def _spend(self, job: Job | None, ledger_units: int, from_reservation: int, account: Account | None = None) -> None:
        if job is not None:
            account = account or self.accounts[job.account]
            job.reserved -= from_reservation
            job.charged += ledger_units
        assert account is not None
        account.reserved -= from_reservation
        account.charged += ledger_units

    def _end(self, job: Job, state: str) -> None:
        self.accounts[job.account].reserved -= job.reserved
        job.reserved = 0
        job.state = state
