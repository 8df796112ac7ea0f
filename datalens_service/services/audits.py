"""Accepting an audit: whose it is, whether its dataset and method allow it, and telling workers of it."""

from typing import NamedTuple

from datalens_service.adapters.dispatch import Dispatcher
from datalens_service.audits.audit import FEWEST_UNITS
from datalens_service.audits.reconstruction import check_invertible
from datalens_service.audits.request import AuditRequest, RehearsedMethod, ReleasedJob, Target, UnprotectedNetwork
from datalens_service.audits.subgroups import check_groups
from datalens_service.audits.targets import FEWEST_TEST_IMAGES, units_per_model
from datalens_service.base.errors import InvalidSpec, StateConflict
from datalens_service.data.dataset import Schema
from datalens_service.methods import AnyMethod
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services import pricing
from datalens_service.services.stored_requests import read_audit_request, read_spec
from datalens_service.spec import TrainingSpec
from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, uploads
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.jobs import audits, jobs
from datalens_service.store.jobs.audits import StoredAudit
from datalens_service.store.jobs.jobs import Job


def about_job(database: Database, job: Job) -> tuple[StoredAudit, ...]:
    """Audits that attack the model of a job, or rehearse its method at its ε, in any state; oldest first.

    Their figures are for the owner alone.
    """
    spec = read_spec(job)
    possible = audits.list_about(database, job.dataset_id, job.id)
    return tuple(audit for audit in possible if _is_about(read_audit_request(audit.job).target, spec))


def describe(target: Target) -> str:
    """Say in words what is attacked."""
    match target:
        case RehearsedMethod(spec=spec):
            return f"{spec.method.name} at ε = {spec.epsilon}, in rehearsal"
        case ReleasedJob():
            return "a released model"
        case UnprotectedNetwork():
            return "a network without privacy, for comparison"


def _is_about(target: Target, spec: TrainingSpec) -> bool:
    """Return True if a target is a released model (of the job as requested) or the same method at the same ε."""
    if isinstance(target, RehearsedMethod):
        return (target.spec.method, target.spec.epsilon) == (spec.method, spec.epsilon)
    return isinstance(target, ReleasedJob)


class Accepted(NamedTuple):
    """A request whose dataset and method allow it."""

    request: AuditRequest
    dataset_id: str
    attacked_job_id: str | None = None


def submit(
    database: Database,
    dispatcher: Dispatcher,
    tenant_id: str,
    request: AuditRequest,
    *,
    submitted_by: str,
    max_attempts: int,
    idempotency_key: str | None = None,
) -> StoredAudit:
    """Queue an audit. Nothing is reserved or charged, because nothing leaves the service but figures for the owner.

    Raises:
        InvalidSpec: Too few units, no test images, the method does not fit a part of the dataset, or it has no gradient
            of single records to invert.
    """
    accepted = accept(database, tenant_id, request)
    audit = audits.create(
        database,
        dataset_id=accepted.dataset_id,
        request=accepted.request.model_dump(mode="json"),
        submitted_by=submitted_by,
        attacked_job_id=accepted.attacked_job_id,
        max_attempts=max_attempts,
        idempotency_key=idempotency_key,
        queue=dispatcher.queue(accepted.request.device),
    )
    dispatcher.submitted(audit.job.id, audit.job.queue)
    return audit


def accept(database: Database, tenant_id: str, request: AuditRequest) -> Accepted:
    """The request as it would be queued; what recommends an audit asks here as well.

    Raises:
        InvalidSpec: The spec does not fit the data set.
        StateConflict: The dataset was deleted, or the job has released nothing.
    """
    match request.target:
        case RehearsedMethod() as target:
            return _accept_rehearsal(database, tenant_id, request, target)
        case UnprotectedNetwork() as target:
            dataset = _dataset(database, tenant_id, target.dataset_id)
            _check_attacks(request, dataset.schema, None)
            return Accepted(request, dataset.id)
        case ReleasedJob() as target:
            return _accept_released(database, tenant_id, request, target)


def _accept_rehearsal(database: Database, tenant_id: str, request: AuditRequest, target: RehearsedMethod) -> Accepted:
    # Members that the request leaves out are planned as for a job.
    asked = RequestedSpec.model_validate(target.spec.model_dump(exclude_unset=True))
    priced = pricing.price_request(database, tenant_id, target.dataset_id, asked)
    schema = datasets.get(database, target.dataset_id).schema
    _check_attacks(request, schema, priced.spec.method)
    if request.membership is not None:
        _check_needs_no_pool(priced.spec.method)
        priced.spec.plan(schema.model_copy(update={"num_units": units_per_model(schema.num_units)}))
    # The parts are smaller than the whole; δ stays that of the job which is rehearsed.
    rehearsed = target.model_copy(update={"spec": priced.spec})
    return Accepted(request.model_copy(update={"target": rehearsed}), target.dataset_id)


def _accept_released(database: Database, tenant_id: str, request: AuditRequest, target: ReleasedJob) -> Accepted:
    with database.connection() as connection:
        tenants.check_owned(connection, tenant_id, {"job_id": target.job_id})
    job = jobs.get(database, target.job_id)
    if job.released_at is None:
        raise StateConflict(f"The job is {job.state} and has released no model; audit it once it has.")
    dataset = _dataset(database, tenant_id, job.dataset_id)
    membership = request.membership
    if membership is not None:
        _check_test_images(database, dataset)
    if membership is not None and membership.needs_references:
        _check_units(dataset.schema)
        _check_needs_no_pool(read_spec(job).method)
    check_groups(dataset.schema.class_names, request.groups)
    if request.inverts:
        check_invertible(dataset.schema, read_spec(job).method)
    return Accepted(request, dataset.id, job.id)


def _dataset(database: Database, tenant_id: str, dataset_id: str) -> StoredDataset:
    with database.connection() as connection:
        tenants.check_owned(connection, tenant_id, {"dataset_id": dataset_id})
    dataset = datasets.get(database, dataset_id)
    if dataset.state is not DatasetState.READY:
        raise StateConflict("The data set was deleted; upload it again to audit it.")
    return dataset


def _check_attacks(request: AuditRequest, schema: Schema, method: AnyMethod | None) -> None:
    """Check the attacks of a rehearsal, with or without privacy."""
    check_groups(schema.class_names, request.groups)
    if request.membership is not None:
        _check_units(schema)
    if request.inverts:
        check_invertible(schema, method)


def _check_test_images(database: Database, dataset: StoredDataset) -> None:
    """Refuse too few test images; a dataset that was copied in has no report that counts them."""
    if not dataset.has_test:
        raise InvalidSpec("A released model is audited with test images as non-members, and the data set has none.")
    count = uploads.count_test_images(database, dataset.id)
    if count is not None and count < FEWEST_TEST_IMAGES:
        raise InvalidSpec(
            f"A released model is audited with at least {FEWEST_TEST_IMAGES} test images as non-members, and the data "
            "set has fewer."
        )


def _check_needs_no_pool(method: AnyMethod) -> None:
    if method.needs_public_images:
        raise InvalidSpec(f"Models of an audit start from no public images, and {method.name} needs some.")


def _check_units(schema: Schema) -> None:
    if schema.num_units < FEWEST_UNITS:
        raise InvalidSpec(f"Models of an audit learn from parts of the data set: it needs {FEWEST_UNITS} units.")
