"""What has to be done for jobs whose workers were lost, by whoever is alive."""

import structlog

from datalens_service.jobs.private_folder import remove_leftovers
from datalens_service.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases

log = structlog.get_logger()


def run_maintenance(database: Database, settings: Settings) -> None:
    """Put jobs with a lease that ran out back into the queue, or end them; remove what ended jobs left.

    Safe to call from several processes at once.
    """
    for job in leases.expire_leases(database):
        log.warning("worker lost", job_id=job.id, state=job.state.value, attempts=job.attempts)
    remove_leftovers(database, settings.data_dir)
