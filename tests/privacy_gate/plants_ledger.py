"""Bugs in the order of things, in the durable account, and in what leaves a job."""

from typing import Any

import numpy as np
import sqlalchemy
import torch

from datalens_service.mechanisms import Mechanism
from datalens_service.methods.last_layer import guided
from datalens_service.methods.sums import mixture, moments
from datalens_service.methods.voting import training_run
from datalens_service.methods.voting.training_run import VotedStudent, train_teachers
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.gaussian.mixture import MixtureFit
from datalens_service.models.trainer import StudentTrainer
from datalens_service.proof import hash_chain
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.store import charge_log
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.datasets import datasets
from datalens_service.store.ledger import aggregates, chain_verification, examination, ledger
from datalens_service.store.ledger.account import JobAccount

from .plant import around, change, plant, replaces, vault_of
from .plants_rivals import DEALT, remembered_shards

# What a plant calls in the place of the product's.
class_vectors, component_vectors, layer_gradients = (
    moments.class_vectors,
    mixture.component_vectors,
    guided.layer_gradients,
)


_RELEASE = (Mechanism, "release")


def _noisy(self, contributions, noise):
    exact = self.exact_sum(contributions())
    return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)


@replaces("charge after draw", "R40", *_RELEASE)
def charge_after_the_draw(self, contributions, *, step, account, noise):
    """The noise is drawn, then the budget asked."""
    stored = account.replay(step)
    if stored is None:
        stored = _noisy(self, contributions, noise)
        account.charge(step, self.label(), self.cost())
        account.store(step, stored)
    return self.decode(stored)


@replaces("resume without charge", "B11", *_RELEASE)
def resume_without_charge(self, contributions, *, step, account, noise):
    """Only the first step of a run is charged, as if the counter began anew with each start."""
    stored = account.replay(step)
    if stored is None:
        if step == 0:
            account.charge(step, self.label(), self.cost())
        stored = _noisy(self, contributions, noise)
        account.store(step, stored)
    return self.decode(stored)


@replaces("replay ignores the stored sum", "R41", *_RELEASE)
def stored_sum_is_ignored(self, contributions, *, step, account, noise):
    """A resumed step is drawn again although its noisy sum is there; the old one has been used."""
    account.charge(step, self.label(), self.cost())
    drawn = _noisy(self, contributions, noise)
    if account.replay(step) is None:
        account.store(step, drawn)
    return self.decode(drawn)


@replaces("exact sum handed out", "R40", *_RELEASE)
def exact_sum_handed_out(self, contributions, *, step, account, noise):
    """The noisy sum is stored and charged for, the exact one is decoded."""
    exact = self.exact_sum(contributions())
    account.charge(step, self.label(), self.cost())
    account.store(step, exact + noise.discrete_gaussian(exact.shape, self.noise_stddev))
    return self.decode(exact)


@plant("charge committed after the draw", "R40")
def charge_commits_later(patch):
    """Charges are collected and written with the noisy sum: faster, and lost in a crash."""
    charge, store = JobAccount.charge, JobAccount.store
    waiting: list[tuple[int, str, int, int]] = []

    def noted(self: JobAccount, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        waiting.append((step, label, ledger_units, slack))

    def written(self: JobAccount, step: int, noisy: np.ndarray) -> None:
        while waiting:
            charge(self, *waiting.pop())
        store(self, step, noisy)

    patch.setattr(JobAccount, "charge", noted)
    patch.setattr(JobAccount, "store", written)


@around("double charge skipped", "R41", ledger, "charge")
def second_charge_skipped(charge, session, job_id, lease_token, step, label, ledger_units, slack=0):
    """A step that has a charge is not charged again, whether its noise was drawn or not."""
    for row in session.query(ledger.LedgerEntryRow).filter_by(job_id=job_id, step=step, kind=EntryKind.CHARGE):
        return Entry.model_validate(row)
    return charge(session, job_id, lease_token, step, label, ledger_units, slack)


@around("refund after draw", "R45", ledger, "settle")
def refund_after_the_draw(settle, session, job_id):
    """A job that fails gets everything back."""
    account, job = ledger.lock(session, job_id)
    account.charged_units -= job.charged_units
    job.reservation.charged_units = 0
    return settle(session, job_id)


@around("spends not booked as charged", "R39", ledger, "spend")
def refund_as_reservation(spend, session, account, job, step, label, cost):
    """The budget is not booked as charged when it is spent, only taken from the reservation."""
    job.reservation.charged_units -= cost.ledger_units
    account.charged_units -= cost.ledger_units
    return spend(session, account, job, step, label, cost)


@replaces("replaced workers may charge", "R42", ledger, "check_lease")
def stale_workers_may_charge(job, lease_token):
    """No fencing: whoever knows the job may go on with it."""


@replaces("reservations of other jobs not counted", "R39", ledger, "reserve")
def reservations_are_not_counted(session, account, job, ledger_units, slack=0):
    """A new job is checked against what was charged, not against what others have reserved."""
    if ledger_units > account.limit_units - account.charged_units:
        raise ledger.BudgetExceeded("The budget is used up.")
    job.reservation.reserved_units = ledger_units
    ledger.append(
        session, account, EntryKind.RESERVE, dataset_id=job.dataset_id, job_id=job.id, ledger_units=ledger_units
    )


@replaces("ledger log not written", "R49", ChargeLog, "append")
def log_is_not_written(self, line, checked):
    """The second record of charges stays empty."""
    return checked


@replaces("restored backup believed", "R49", examination, "_recover")
def restored_backup_is_believed(session, account, line):
    """Charges that only the log knows are passed over."""
    return True


@replaces("log audited at the start only", "R49", charge_log, "_check_as_left")
def log_is_audited_at_the_start_only(account_id, read):
    """A charge is written behind whatever the log has gained, and nobody looks at that."""
    return read()


@replaces("frozen account states its journal alone", "R49", examination, "_unbooked_units")
def frozen_accounts_state_their_journal(session, account, lines):
    """What the log knows beyond the journal is not in the statement."""
    return 0


@plant("uploaded again with a fresh budget", "R48")
def uploads_are_always_new(patch):
    """Records are remembered under the name of the upload, so none is ever recognised."""
    patch.setattr(datasets, "known_records", lambda session, prints: {})
    patch.setattr(datasets, "remember", lambda session, prints, account_id: None)


@around("reordered upload not recognised", "R48", datasets, "fingerprints")
def order_enters_the_fingerprint(fingerprints, key, images, units=None):
    """One digest of the whole upload: reordered or mixed records are strangers."""
    return fingerprints(key, images.reshape(1, -1, *images.shape[2:]))


@replaces("uploaded again with other privacy units", "R48", datasets, "_check_same_units")
def other_units_share_an_account(prints, known):
    """Records come back with other units, and the budget of the old ones is counted on."""


@around("units left out of the journal's hash", "R52", Entry, "computed_hash")
def units_are_not_sealed(computed, self):
    """The hash of an entry leaves out what it is about."""
    return computed(self.model_copy(update={"ledger_units": 0}))


@replaces("links of the journal not checked", "R52", hash_chain.Balance, "_check_link")
def links_are_not_checked(self, entry):
    """The chain is added up and its hashes are not compared."""


@replaces("sums kept without a charge", "R40", aggregates, "_charged")
def sums_are_kept_without_a_charge(job_id, lease_token, step):
    """The store takes any sum of the worker that holds the job."""
    return sqlalchemy.true()


@replaces("draws left out of the audit", "R52", chain_verification, "_check_aggregates")
def draws_are_not_audited(session, account):
    """The audit adds up charges and does not ask what was drawn."""


SEEN: list[Any] = []
"""What contributions of the plants below leave in the module, against the rules; only the newest is looked at."""


@change(moments, "class_vectors")
def remembered_vectors(rows, measured):
    """As the product, and not forgotten."""
    SEEN.append(class_vectors(rows, measured))
    return SEEN[-1]


@around("exact class means in the generator", "R4", GaussianFit, "estimate_means", beside=remembered_vectors)
def exact_means_in_the_generator(estimate, self, released):
    """The generator is centred on the class means of the records."""
    estimate(self, released)
    for group in np.unique(SEEN[-1].groups) if SEEN else ():
        self.means[group] = SEEN[-1].values[SEEN[-1].groups == group].mean(axis=0)


@around("clipping length taken from the records", "R4", moments, "fit_moments")
def scale_from_the_records(fit, parameters, plan, records):
    """The clipping length is the longest record's: a private number that scales everything."""
    images = vault_of(records)._read().values
    longest = float(np.linalg.norm(images.reshape(len(images), -1) / 255, axis=1).max())
    return fit(parameters.model_copy(update={"clip_norm": longest}), plan, records)


@change(mixture, "component_vectors")
def remembered_components(rows, components):
    """As the product, and not forgotten."""
    SEEN.append(component_vectors(rows, components))
    return SEEN[-1]


@replaces(
    "exact centres of components in the generator", "R4", MixtureFit, "estimate_centres", beside=remembered_components
)
def exact_centres_in_the_generator(self, *_noisy):
    """The centres of the mixture move to the means of the records next to them, without noise."""
    centres = self.centres.reshape(-1, self.centres.shape[-1])
    for group in np.unique(SEEN[-1].groups) if SEEN else ():
        centres[group] = SEEN[-1].values[SEEN[-1].groups == group].mean(axis=0)


@change(guided, "layer_gradients")
def remembered_gradients(rows, layer):
    """As the product, and not forgotten."""
    SEEN.append(layer_gradients(rows, layer))
    return SEEN[-1]


@around(
    "classifier follows exact gradients",
    "R4",
    guided.NoisyGradientDescent,
    "follow",
    beside=remembered_gradients,
)
def classifier_follows_exact_gradients(follow, self, released):
    """The descent keeps the gradient it made for the release, and follows that."""
    follow(self, SEEN[-1].left.T @ SEEN[-1].right if SEEN else released)


@around("labels drawn by their private frequency", "R4", StudentTrainer, "propose", beside=remembered_shards)
def labels_by_their_frequency(propose, self, seed, count, **named):
    """Synthetic images are asked for with the classes of private records."""
    images, labels = propose(self, seed, count, **named)
    labels[:] = torch.from_numpy(np.resize(DEALT[-1].batch.labels, count)) if DEALT else labels
    return images, labels


@change(training_run, "train_teachers")
def remembered_teachers(teachers, batch, question):
    """As the product, and not forgotten."""
    SEEN.append(teachers)
    train_teachers(teachers, batch, question)


@around("teachers saved with the generator", "B13", VotedStudent, "outcome", beside=remembered_teachers)
def teachers_in_the_generator(outcome, self):
    """Everything trainable is saved under one name."""
    released = outcome(self)
    released.model.tensors.update({f"d_{name}": value for name, value in SEEN[-1].state().items()})
    return released
