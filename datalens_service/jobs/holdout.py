"""Accuracy on a data set that was set aside: a noisy count, paid for from the budget of that data set.

    a classifier of released images, or a released one ──▶ label the hold-out ──▶ reserve ──▶ charge ──▶ draw ──▶ end

Nothing of the hold-out is read before the classifier is fixed, and nothing leaves but the noisy count.
"""

from pathlib import Path

import numpy as np

from datalens_service.base.errors import NotFound
from datalens_service.base.parsing import decimal_text
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Upload
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.evaluation import EvaluationSettings, Measure
from datalens_service.evaluation.evaluate import PROTOCOL, predicting
from datalens_service.evaluation.metrics import classifiers, downstream
from datalens_service.evaluation.metrics.classifier_benchmark import trained_by
from datalens_service.mechanisms import AccuracyCount
from datalens_service.mechanisms.accuracy import Answers
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.privacy.accounting import Charge, stated_epsilon
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.record_files import RecordStore
from datalens_service.store.jobs import jobs, leases, measurements
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.account_summary import summarize_account

PRIVATE_READS = ("accuracy on a data set that was set aside",)


def open_holdout(database: Database, settings: Settings, job_id: str, dataset_id: str, folder: Path) -> Upload:
    """The data set that was set aside for a job; fetched into its private `folder` if it is not here.

    Raises:
        NotFound: There is no such data set.
        StateConflict: It was deleted.
        InvalidSpec: It is not a hold-out of the job's data set.
    """
    stored = datasets.check_holdout(database, jobs.get(database, job_id).dataset_id, dataset_id)
    records = RecordStore(settings).fetch(stored.records_path, folder / "holdout")
    return load_dataset(records)


def holdout_accuracy(
    database: Database, lease: Lease, model: ReleasedModel, holdout: Upload, settings: EvaluationSettings, device: str
) -> Measure:
    """Charge for the accuracy on the hold-out, and release it with noise: of classifier A, or of a released classifier.

    Args:
        holdout: Private; `settings.holdout` is its id.
        settings: Training of the classifier, and the noise.

    Raises:
        BudgetExceeded: The hold-out's account does not pay for it; nothing was drawn.
        NotFound: The data set is gone.
        StateConflict: It was deleted.
    """
    if settings.holdout is None:
        raise NotFound("No data set was set aside.")
    mechanism = AccuracyCount(num_units=holdout.schema.num_units, noise_stddev=settings.holdout_noise_stddev)
    # A release of an earlier worker of this job is not paid for twice.
    noisy = measurements.replay(database, lease.job_id, settings.holdout)
    value = None if noisy is None else mechanism.decode(noisy)
    if value is None:
        answers = _answers(model, holdout, settings, device)
        value = _released(database, lease, settings.holdout, mechanism, answers)
    return Measure(
        name="accuracy_holdout" if isinstance(model, Generator) else "classifier_accuracy_holdout",
        value=value,
        unit="percent",
        audience="public",
        status="covered",
        protocol=_protocol(database, _labelled_by(model, settings), settings, mechanism),
    )


def _answers(model: ReleasedModel, holdout: Upload, settings: EvaluationSettings, device: str) -> Answers:
    if isinstance(model, Generator):
        images, labels = model.draw_training_set(settings.synthetic_images)
        network = downstream.train_network(
            images, labels, holdout.schema.num_classes,
            steps=settings.steps, batch_size=settings.batch_size, mirrored=settings.mirrored, seed=0, device=device,
        )  # fmt: skip
        predicted = downstream.label_images(network, holdout.train.images, device)
    else:
        predicted = predicting(model).predict(holdout.train.images).argmax(axis=1)
    return Answers(np.asarray(predicted == holdout.train.labels), holdout.train.unit_ids)


def _labelled_by(model: ReleasedModel, settings: EvaluationSettings) -> str:
    if not isinstance(model, Generator):
        return PROTOCOL
    return trained_by(classifiers.STANDARD, settings, f"{settings.synthetic_images:,} drawn images")


def _released(database: Database, lease: Lease, dataset_id: str, mechanism: AccuracyCount, answers: Answers) -> float:
    measured = jobs.get(database, lease.job_id)
    measurement = measurements.begin(database, measured, dataset_id, mechanism.cost(), lease)
    account = JobAccount(database, measurement.job_id, measurement.token)
    value = mechanism.release(lambda: answers, step=0, account=account, noise=NoiseSource())
    leases.finish(database, measurement, JobState.SUCCEEDED)
    return value


def _protocol(database: Database, labelled_by: str, settings: EvaluationSettings, mechanism: AccuracyCount) -> str:
    with database.session() as session:
        delta = summarize_account(session, settings.holdout or "").delta
    epsilon = stated_epsilon(Charge(mechanism.cost()), delta)
    return (
        f"{labelled_by}; "
        f"number of right labels among {mechanism.num_units:,} units of the data set {settings.holdout}, with discrete "
        f"Gaussian noise of σ = {mechanism.noise_stddev}: {mechanism.cost():,} units (ε = {epsilon} at "
        f"δ = {decimal_text(delta)}) charged to the account of that data set"
    )
