"""What a Celery worker does about jobs whose worker or message was lost.

Every worker does it; claims make repetitions harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import structlog
from amqp.exceptions import ChannelError
from celery import Celery
from kombu import Queue

from datalens_service import logs
from datalens_service.store.jobs import leases
from workers.process import health
from workers.process.recover_jobs import upkeep
from workers.process.runtime import Runtime

log = structlog.get_logger()

TASK = "datalens.run_job"

_MOST_MESSAGES = 100


class Redelivery(threading.Thread):
    """Three times per lease: upkeep, and if the queue is empty while jobs wait, their messages again.

    Jobs whose messages are still in the queue need none. When it has drained, a job that waits through two rounds
    has lost its message or was given back; one that waits shorter may be about to be claimed.
    """

    def __init__(self, app: Celery, runtime: Runtime) -> None:
        super().__init__(name="redelivery", daemon=True)
        self._app = app
        self._runtime = runtime
        self._waiting: frozenset[str] = frozenset()

    def run(self) -> None:
        """Go on until the worker stops."""
        while True:
            self._try_round()
            if self._runtime.stopping.wait(self._runtime.settings.lease_seconds / 3):
                return

    def _try_round(self) -> None:
        try:
            self._round()
        except Exception as error:  # noqa: BLE001 (database or broker may be away for a while)
            log.error("lost jobs not looked after, trying again", **logs.outline(error))

    def _round(self) -> None:
        upkeep(self._runtime.database, self._runtime.settings)
        waiting = leases.next_queued(self._runtime.database, _MOST_MESSAGES, self._runtime.settings.queue)
        if self._queue_is_empty():
            self._send([job_id for job_id in waiting if job_id in self._waiting])
        self._waiting = frozenset(waiting)
        health.alive()

    def _send(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            log.info("job has no message, sent again", job_id=job_id)
            self._app.send_task(TASK, [job_id])

    def _queue_is_empty(self) -> bool:
        with self._app.connection_for_write() as connection:
            queue = Queue(self._app.conf.task_default_queue, channel=connection.default_channel)
            try:
                declared: Any = queue.queue_declare(passive=True)
                return int(declared.message_count) == 0
            except ChannelError:
                # Redis knows no empty lists: a queue without messages does not exist.
                return True
