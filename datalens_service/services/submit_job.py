"""Submitting a job, the main verb of the product: reserve what it costs, and tell workers of it."""

from datalens_service.adapters.dispatch import Dispatcher
from datalens_service.planning.job_names import default_name
from datalens_service.services.pricing import PricedRequest
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import DEFAULT_MAX_ATTEMPTS, Job
from datalens_service.store.schema.tables import DEFAULT_PRIORITY


def submit_job(
    database: Database,
    dispatcher: Dispatcher,
    priced: PricedRequest,
    *,
    submitted_by: str,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    idempotency_key: str | None = None,
    priority: int = DEFAULT_PRIORITY,
    needs_approval: bool = False,
) -> Job:
    """Accept a job at its price. Its row and its reservation are written in one transaction.

    Args:
        submitted_by: Id of the key or person, as the audit journal names them.
        max_attempts: Lost workers in a row without a stored step before it fails.
        idempotency_key: Chosen by the client; the same key with the same request is the same job.
        needs_approval: True if a second person decides about its result.

    Raises:
        BudgetExceeded: Less remains than it costs; nothing was kept.
        StateConflict: The data set was deleted, or the key belongs to another request.
    """
    job = jobs.create(
        database,
        dataset_id=priced.dataset_id,
        spec=priced.spec.model_dump(mode="json"),
        result=priced.spec.method.result,
        price=priced.price.model_dump(mode="json"),
        plan=priced.plan,
        ledger_units=priced.price.ledger_units,
        submitted_by=submitted_by,
        max_attempts=max_attempts,
        idempotency_key=idempotency_key,
        queue=dispatcher.queue(priced.spec.device),
        priority=priority,
        name=default_name(priced.asked),
        needs_approval=needs_approval,
    )
    dispatcher.submitted(job.id, job.queue)
    return job
