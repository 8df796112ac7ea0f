"""The Celery application: `celery -A datalens_service.workers.app worker --concurrency 1 …` (docs/deploy.md).

Celery only wakes workers. Which job runs where, how often it was tried and whether it was cancelled is in the
database, so every setting here may lose or repeat a message, but none may start a job unasked.
"""

from typing import Any

from celery import Celery

from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings

_HOURS = 3600


def make_app(settings: Settings) -> Celery:
    """The application for the broker and the queue of the settings.

    Raises:
        InvalidInput: No broker is set.
    """
    if not settings.broker_url:
        raise InvalidInput("Celery needs ⟦DATALENS_BROKER_URL⟧, for example redis://localhost:6379/0.")
    app = Celery("datalens", broker=settings.broker_url, include=["datalens_service.workers.tasks"])
    app.conf.update(_delivery(settings.queue), **_worker())
    return app


def _delivery(queue: str) -> dict[str, Any]:
    """Configure how messages travel."""
    return {
        "task_default_queue": queue,
        # A message is an id in JSON. Nothing that could carry code is read.
        "task_serializer": "json",
        "accept_content": ["json"],
        # Acknowledged when taken: what becomes of a job whose worker died is decided by its lease.
        "task_acks_late": False,
        "worker_prefetch_multiplier": 1,
        # The state of a job is in the database; a second, forgetful copy would only contradict it.
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_track_started": False,
        # A broker that is away is waited for, however long: jobs in the database do not go away.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            # A belt: messages are acknowledged at once, so nothing should ever wait this long to be restored.
            "visibility_timeout": 12 * _HOURS,
            "socket_keepalive": True,
            "health_check_interval": 25,
        },
    }


def _worker() -> dict[str, Any]:
    """Configure how a worker process behaves."""
    return {
        # A task only wakes a thread of its own process.
        "worker_pool": "threads",
        "worker_consumer": "datalens_service.workers.consumer:Consumer",
        # Nothing here needs remote control, and whoever reaches the broker should not have it.
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        # Logs go to standard error as they are; Celery would mark every line of a job process as a warning.
        "worker_redirect_stdouts": False,
    }


app = make_app(Settings())
