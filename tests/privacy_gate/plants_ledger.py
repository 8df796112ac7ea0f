"""Bugs in the order of things, in the durable account, and in what leaves a job."""

from typing import Any

import numpy as np
import pytest
import sqlalchemy
import torch
from sqlalchemy.orm import Session

from datalens_service.data.shard_batches import ShardBatch
from datalens_service.mechanisms import Mechanism
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods.last_layer import guided
from datalens_service.methods.sums import mixture, moments
from datalens_service.methods.sums.moments import MomentsRun
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.shard_teachers import Question, train_teachers
from datalens_service.methods.voting.training_run import DataLensRun
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.gaussian.mixture import MixtureFit
from datalens_service.models.trainer import StudentTrainer
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.proof import hash_chain
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.store import charge_log
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.datasets import datasets
from datalens_service.store.ledger import aggregates, chain_verification, examination, ledger
from datalens_service.store.ledger.account import JobAccount

from .plant import Plant
from .plants_rivals import DEALT, remembered_shards

# What a plant calls in the place of the product's.
class_vectors, component_vectors, layer_gradients = (
    moments.class_vectors,
    mixture.component_vectors,
    guided.layer_gradients,
)


def _release(patch: pytest.MonkeyPatch, body: Any) -> None:
    """Replace `release` by `body(self, contributions, step, account, noise)`."""

    def release(self: Mechanism, contributions: Any, *, step: int, account: Any, noise: NoiseSource) -> Any:
        return body(self, contributions, step, account, noise)

    patch.setattr(Mechanism, "release", release)


def _noisy(self: Mechanism, contributions: Any, noise: NoiseSource) -> np.ndarray:
    exact = self.exact_sum(contributions())
    return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)


def charge_after_the_draw(patch: pytest.MonkeyPatch) -> None:
    """The noise is drawn, then the budget asked."""

    def body(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Any:
        stored = account.replay(step)
        if stored is None:
            stored = _noisy(self, contributions, noise)
            account.charge(step, self.label(), self.cost())
            account.store(step, stored)
        return self.decode(stored)

    _release(patch, body)


def resume_without_charge(patch: pytest.MonkeyPatch) -> None:
    """Only the first step of a run is charged, as if the counter began anew with each start."""

    def body(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Any:
        stored = account.replay(step)
        if stored is None:
            if step == 0:
                account.charge(step, self.label(), self.cost())
            stored = _noisy(self, contributions, noise)
            account.store(step, stored)
        return self.decode(stored)

    _release(patch, body)


def stored_sum_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A resumed step is drawn again although its noisy sum is there; the old one has been used."""

    def body(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Any:
        account.charge(step, self.label(), self.cost())
        drawn = _noisy(self, contributions, noise)
        if account.replay(step) is None:
            account.store(step, drawn)
        return self.decode(drawn)

    _release(patch, body)


def exact_sum_handed_out(patch: pytest.MonkeyPatch) -> None:
    """The noisy sum is stored and charged for, the exact one is decoded."""

    def body(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Any:
        exact = self.exact_sum(contributions())
        account.charge(step, self.label(), self.cost())
        account.store(step, exact + noise.discrete_gaussian(exact.shape, self.noise_stddev))
        return self.decode(exact)

    _release(patch, body)


def charge_commits_later(patch: pytest.MonkeyPatch) -> None:
    """Charges are collected and written with the noisy sum: faster, and lost in a crash."""
    charge, store = JobAccount.charge, JobAccount.store
    waiting: list[tuple[int, str, int, int]] = []

    def noted(self: JobAccount, step: int, label: str, units: int, slack: int = 0) -> None:
        waiting.append((step, label, units, slack))

    def written(self: JobAccount, step: int, noisy: np.ndarray) -> None:
        while waiting:
            charge(self, *waiting.pop())
        store(self, step, noisy)

    patch.setattr(JobAccount, "charge", noted)
    patch.setattr(JobAccount, "store", written)


def second_charge_skipped(patch: pytest.MonkeyPatch) -> None:
    """A step that has a charge is not charged again, whether its noise was drawn or not."""
    charge = ledger.charge

    def once(
        session: Session, job_id: str, lease_token: int, step: int, label: str, units: int, slack: int = 0
    ) -> Entry:
        for row in session.query(ledger.LedgerEntryRow).filter_by(job_id=job_id, step=step, kind=EntryKind.CHARGE):
            return Entry.model_validate(row)
        return charge(session, job_id, lease_token, step, label, units, slack)

    patch.setattr(ledger, "charge", once)


def refund_after_the_draw(patch: pytest.MonkeyPatch) -> None:
    """A job that fails gets everything back."""
    settle = ledger.settle

    def refunded(session: Session, job_id: str, lease_token: int | None) -> int:
        account, job = ledger.lock(session, job_id)
        account.charged_units -= job.charged_units
        job.reservation.charged_units = 0
        return settle(session, job_id, lease_token)

    patch.setattr(ledger, "settle", refunded)


def refund_as_reservation(patch: pytest.MonkeyPatch) -> None:
    """The budget is not booked as charged when it is spent, only taken from the reservation."""

    spend = ledger.spend

    def unbooked(session: Session, account: Any, job: Any, step: int, label: str, cost: Charge) -> Entry:
        job.reservation.charged_units -= cost.units
        account.charged_units -= cost.units
        return spend(session, account, job, step, label, cost)

    patch.setattr(ledger, "spend", unbooked)


def stale_workers_may_charge(patch: pytest.MonkeyPatch) -> None:
    """No fencing: whoever knows the job may go on with it."""
    patch.setattr(ledger, "check_lease", lambda job, lease_token: None)


def reservations_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A new job is checked against what was charged, not against what others have reserved."""

    def reserve(session: Session, account: Any, job: Any, units: int, slack: int = 0) -> None:
        if units > account.limit_units - account.charged_units:
            raise ledger.BudgetExceeded("The budget is used up.")
        job.reservation.reserved_units = units
        ledger.append(session, account, EntryKind.RESERVE, dataset_id=job.dataset_id, job_id=job.id, units=units)

    patch.setattr(ledger, "reserve", reserve)


def log_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """The second record of charges stays empty."""
    patch.setattr(ChargeLog, "append", lambda self, line, checked: checked)


def restored_backup_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Charges that only the log knows are passed over."""
    patch.setattr(examination, "_recover", lambda session, account, line: True)


def log_is_audited_at_the_start_only(patch: pytest.MonkeyPatch) -> None:
    """A charge is written behind whatever the log has gained, and nobody looks at that."""

    def unseen(account_id: str, read: Any) -> Any:
        return read()

    patch.setattr(charge_log, "_check_as_left", unseen)


def frozen_accounts_state_their_journal(patch: pytest.MonkeyPatch) -> None:
    """What the log knows beyond the journal is not in the statement."""
    patch.setattr(examination, "_unbooked_units", lambda session, account, lines: 0)


def uploads_are_always_new(patch: pytest.MonkeyPatch) -> None:
    """Records are remembered under the name of the upload, so none is ever recognised."""
    patch.setattr(datasets, "known_records", lambda session, prints: {})
    patch.setattr(datasets, "remember", lambda session, prints, account_id: None)


def order_enters_the_fingerprint(patch: pytest.MonkeyPatch) -> None:
    """One digest of the whole upload: reordered or mixed records are strangers."""
    fingerprints = datasets.fingerprints

    def whole(key: bytes, images: np.ndarray, units: None = None) -> dict[bytes, bytes | None]:
        return fingerprints(key, images.reshape(1, -1, *images.shape[2:]))

    patch.setattr(datasets, "fingerprints", whole)


def other_units_share_an_account(patch: pytest.MonkeyPatch) -> None:
    """Records come back with other units, and the budget of the old ones is counted on."""
    patch.setattr(datasets, "_check_same_units", lambda prints, known: None)


def units_are_not_sealed(patch: pytest.MonkeyPatch) -> None:
    """The hash of an entry leaves out what it is about."""
    computed = Entry.computed_hash
    patch.setattr(Entry, "computed_hash", lambda self: computed(self.model_copy(update={"units": 0})))


def links_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """The chain is added up and its hashes are not compared."""
    patch.setattr(hash_chain.Balance, "_check_link", lambda self, entry: None)


def sums_are_kept_without_a_charge(patch: pytest.MonkeyPatch) -> None:
    """The store takes any sum of the worker that holds the job."""
    patch.setattr(aggregates, "_charged", lambda job_id, lease_token, step: sqlalchemy.true())


def draws_are_not_audited(patch: pytest.MonkeyPatch) -> None:
    """The audit adds up charges and does not ask what was drawn."""
    patch.setattr(chain_verification, "_check_aggregates", lambda session, account: None)


SEEN: list[Any] = []
"""What contributions of the plants below leave in the module, against the rules; only the newest is looked at."""


def remembered_vectors(rows: Rows, measured: moments.Measured) -> Any:
    """As the product, and not forgotten."""
    SEEN.append(class_vectors(rows, measured))
    return SEEN[-1]


def exact_means_in_the_generator(patch: pytest.MonkeyPatch) -> None:
    """The generator is centred on the class means of the records."""
    estimate = GaussianFit.estimate_means

    def centred(self: GaussianFit, released: np.ndarray) -> None:
        estimate(self, released)
        for group in np.unique(SEEN[-1].groups) if SEEN else ():
            self.means[group] = SEEN[-1].values[SEEN[-1].groups == group].mean(axis=0)

    patch.setattr(moments, "class_vectors", remembered_vectors)
    patch.setattr(GaussianFit, "estimate_means", centred)


def scale_from_the_records(patch: pytest.MonkeyPatch) -> None:
    """The clipping length is the longest record's: a private number that scales everything."""
    start = MomentsRun.__init__

    def scaled(self: MomentsRun, parameters: Any, plan: Any, records: PrivateRecords) -> None:
        start(self, parameters, plan, records)
        images = records._vault.rows().values
        self.view.clip_norm = float(np.linalg.norm(images.reshape(len(images), -1) / 255, axis=1).max())

    patch.setattr(MomentsRun, "__init__", scaled)


def remembered_components(rows: Rows, components: mixture.Components) -> Any:
    """As the product, and not forgotten."""
    SEEN.append(component_vectors(rows, components))
    return SEEN[-1]


def exact_centres_in_the_generator(patch: pytest.MonkeyPatch) -> None:
    """The centres of the mixture move to the means of the records next to them, without noise."""

    def exactly(self: MixtureFit, *_noisy: Any) -> None:
        centres = self.centres.reshape(-1, self.centres.shape[-1])
        for group in np.unique(SEEN[-1].groups) if SEEN else ():
            centres[group] = SEEN[-1].values[SEEN[-1].groups == group].mean(axis=0)

    patch.setattr(mixture, "component_vectors", remembered_components)
    patch.setattr(MixtureFit, "estimate_centres", exactly)


def remembered_gradients(rows: Rows, layer: guided.Layer) -> Any:
    """As the product, and not forgotten."""
    SEEN.append(layer_gradients(rows, layer))
    return SEEN[-1]


def classifier_follows_exact_gradients(patch: pytest.MonkeyPatch) -> None:
    """The descent keeps the gradient it made for the release, and follows that."""
    follow = guided.NoisyGradientDescent.apply_gradient

    def exactly(self: guided.NoisyGradientDescent, released: np.ndarray) -> None:
        follow(self, SEEN[-1].left.T @ SEEN[-1].right if SEEN else released)

    patch.setattr(guided, "layer_gradients", remembered_gradients)
    patch.setattr(guided.NoisyGradientDescent, "apply_gradient", exactly)


def labels_by_their_frequency(patch: pytest.MonkeyPatch) -> None:
    """Synthetic images are asked for with the classes of private records."""
    propose = StudentTrainer.propose

    def by_frequency(self: StudentTrainer, seed: int, count: int, **named: Any) -> Any:
        images, labels = propose(self, seed, count, **named)
        labels[:] = torch.from_numpy(np.resize(DEALT[-1].batch.labels, count)) if DEALT else labels
        return images, labels

    patch.setattr(training_run, "make_teachers", remembered_shards)
    patch.setattr(StudentTrainer, "propose", by_frequency)


def remembered_teachers(teachers: Any, batch: ShardBatch, question: Question) -> None:
    """As the product, and not forgotten."""
    SEEN.append(teachers)
    train_teachers(teachers, batch, question)


def teachers_in_the_generator(patch: pytest.MonkeyPatch) -> None:
    """Everything trainable is saved under one name."""
    result = DataLensRun.result

    def saved(self: DataLensRun) -> Any:
        released = result(self)
        released.tensors.update({f"d_{name}": value for name, value in SEEN[-1].state().items()})
        return released

    patch.setattr(training_run, "train_teachers", remembered_teachers)
    patch.setattr(DataLensRun, "result", saved)


PLANTS = (
    Plant("charge after draw", "R40", charge_after_the_draw),
    Plant("resume without charge", "B11", resume_without_charge),
    Plant("replay ignores the stored sum", "R41", stored_sum_is_ignored),
    Plant("exact sum handed out", "R40", exact_sum_handed_out),
    Plant("charge committed after the draw", "R40", charge_commits_later),
    Plant("double charge skipped", "R41", second_charge_skipped),
    Plant("refund after draw", "R45", refund_after_the_draw),
    Plant("spends not booked as charged", "R39", refund_as_reservation),
    Plant("replaced workers may charge", "R42", stale_workers_may_charge),
    Plant("reservations of other jobs not counted", "R39", reservations_are_not_counted),
    Plant("ledger log not written", "R49", log_is_not_written),
    Plant("restored backup believed", "R49", restored_backup_is_believed),
    Plant("log audited at the start only", "R49", log_is_audited_at_the_start_only),
    Plant("frozen account states its journal alone", "R49", frozen_accounts_state_their_journal),
    Plant("uploaded again with a fresh budget", "R48", uploads_are_always_new),
    Plant("reordered upload not recognised", "R48", order_enters_the_fingerprint),
    Plant("uploaded again with other privacy units", "R48", other_units_share_an_account),
    Plant("units left out of the journal's hash", "R52", units_are_not_sealed),
    Plant("links of the journal not checked", "R52", links_are_not_checked),
    Plant("sums kept without a charge", "R40", sums_are_kept_without_a_charge),
    Plant("draws left out of the audit", "R52", draws_are_not_audited),
    Plant("exact class means in the generator", "R4", exact_means_in_the_generator),
    Plant("exact centres of components in the generator", "R4", exact_centres_in_the_generator),
    Plant("classifier follows exact gradients", "R4", classifier_follows_exact_gradients),
    Plant("clipping length taken from the records", "R4", scale_from_the_records),
    Plant("labels drawn by their private frequency", "R4", labels_by_their_frequency),
    Plant("teachers saved with the generator", "B13", teachers_in_the_generator),
)
