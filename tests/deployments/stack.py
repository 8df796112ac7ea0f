"""The service as people run it: an API, workers, and on the production path a broker and a database server.

Both stacks are driven through the API alone; what they did is read from their database.
"""

import contextlib
import os
import signal
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import numpy as np
from celery import Celery

from datalens_service.base.errors import StoreUnavailable
from datalens_service.client import Client
from datalens_service.store.access import keys
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from deployments.deployment import PATIENCE, Deployment, Process, lamps
from deployments.postgresql import Cluster, roomy_memory
from deployments.redis import Redis
from ports import free_port

T = TypeVar("T")

SECRET = "canary0password"  # noqa: S105 (of servers that live as long as a test)
"""Of broker and database; no line of any log may contain it."""

SENTINEL = "sentinel"
"""In the names of files, classes and data sets, which are private to their owner."""

_WORKER = (
    "-A",
    "datalens_service.workers.app",
    "worker",
    "--concurrency",
    "1",
    "--without-gossip",
    "--without-mingle",
    "-l",
    "info",
)


class Stack(Deployment):
    """A running service in a folder of its own; the processes of the API and of the workers can be killed."""

    STARTED: str
    """What a worker logs when it begins to take jobs."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database, folder)
        self.port = free_port()
        self.key = keys.create(database, "contract")[1]
        self.workers: list[Process] = []
        self.api: Process | None = None
        self._uploads = 0

    @abstractmethod
    def worker_command(self) -> tuple[str, ...]:
        """Module and arguments that start a worker."""

    @abstractmethod
    def deliver(self, job_id: str) -> None:
        """Hand a job to the workers once more."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Start API and one worker."""
        self.start_api()
        self.start_worker()
        self.wait(self.ready)

    def start_api(self) -> None:
        self.api = self.start_warm(*self.api_command())

    def api_command(self, port: int | None = None) -> tuple[str, ...]:
        """Module and arguments that start an API, on the port of the service or another one."""
        options = ("--factory", "--host", "127.0.0.1", "--port", str(port or self.port), "--no-access-log")
        return ("uvicorn", "datalens_service.api.main:create_app", *options)

    def kill_api(self) -> None:
        assert self.api is not None
        self.api.kill()
        self.api.wait()

    def start_worker(self) -> Process:
        worker = self.start_warm(*self.worker_command())
        self.workers.append(worker)
        return worker

    def kill_worker(self, worker: Process) -> None:
        self.workers.remove(worker)
        worker.kill()
        worker.wait()

    def kill_job_process(self, job: Job) -> None:
        """Of a running job; it may have ended by itself a moment ago."""
        with contextlib.suppress(ProcessLookupError, AssertionError, ValueError):
            os.kill(self.worker_pid(job), signal.SIGKILL)

    def ready(self) -> bool:
        """Whether the API says that it can do its work."""
        return is_ready(self.url)

    @property
    def headers(self) -> dict[str, str]:
        """Of a request of its owner."""
        return {"Authorization": f"Bearer {self.key}"}

    def client(self) -> Client:
        return Client(self.url, self.key, timeout=PATIENCE)

    def new_dataset(self, epsilon: float = 10.0) -> str:
        """Upload records that no other data set has; its id."""
        self._uploads += 1
        dataset = lamps(self._uploads)
        assert dataset.test is not None
        path = self.folder / f"{SENTINEL}-{self._uploads}.npz"
        arrays = {
            f"{split}_{kind}": getattr(part, kind)
            for split, part in (("train", dataset.train), ("test", dataset.test))
            for kind in ("images", "labels")
        }
        np.savez(path, **arrays)
        with self.client() as client:
            classes = (f"{SENTINEL}-bright", f"{SENTINEL}-dark")
            return client.upload_dataset(path, epsilon=epsilon, name=SENTINEL, class_names=classes).id

    def order(self, spec: dict[str, Any], dataset_id: str | None = None, key: str | None = None) -> Job:
        """Submit a job through the API."""
        with self.client() as client:
            made = client.submit(dataset_id or self.new_dataset(), spec, idempotency_key=key, accept_low_utility=True)
        return jobs.get(self.database, made.id)

    def wait(self, condition: Callable[[], bool]) -> None:
        """As before, and while the database is away the condition does not hold."""

        def holds() -> bool:
            try:
                return condition()
            except StoreUnavailable:
                return False

        super().wait(holds)

    def patiently(self, ask: Callable[[], T]) -> T:
        """The answer, as soon as the database gives one."""
        answers: list[T] = []

        def answered() -> bool:
            answers.append(ask())
            return True

        self.wait(answered)
        return answers[-1]

    def assert_nothing_private_in(self, text: str) -> None:
        """Neither what the owner named nor a secret of the deployment, in a log or in metrics."""
        for private in (SENTINEL, SECRET, self.key, str(self.folder / "datasets")):
            assert private not in text


class LocalStack(Stack):
    """SQLite and the supervisor."""

    STARTED = "supervisor started"

    def __init__(self, folder: Path) -> None:
        database = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
        database.migrate()
        super().__init__(database, folder)

    def worker_command(self) -> tuple[str, ...]:
        return ("datalens_service.workers.process.supervisor",)

    def deliver(self, job_id: str) -> None:
        self.start_warm("datalens_service.workers.run_job", job_id)


class CeleryStack(Stack):
    """PostgreSQL, Redis and Celery workers.

    Args:
        certificate: With its key; the two servers speak TLS by it.
    """

    STARTED = " ready."

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self.redis = Redis(folder, SECRET, certificate)
        # Not the folder of the deployment: the path of a Unix socket must stay below 108 bytes.
        self._sockets = tempfile.TemporaryDirectory(prefix="dlpg", dir=roomy_memory())
        self.postgresql = Cluster(Path(self._sockets.name), certificate)
        self.postgresql.start()
        self.redis.serve()
        database = Database(_with_password(self.postgresql), ChargeLog(folder / "ledger.log"))
        database.migrate()
        super().__init__(database, folder)
        self.changes |= {"DATALENS_EXECUTOR": "celery", "DATALENS_BROKER_URL": self.redis.url}

    def empty_database(self) -> None:
        """Put one without tables in the place of the database."""
        self.database.dispose()
        self.postgresql.execute("DROP DATABASE service")
        self.postgresql.execute("CREATE DATABASE service OWNER service")

    def worker_command(self) -> tuple[str, ...]:
        return ("celery", *_WORKER, "-n", f"worker-{time.monotonic_ns()}@%h")

    def deliver(self, job_id: str) -> None:
        with Celery(broker=self.redis.url, set_as_current=False) as producer:
            producer.send_task("datalens.run_job", [job_id], queue="cpu")

    def close(self) -> None:
        super().close()
        self.database.dispose()
        self.redis.kill()
        self.postgresql.stop()
        self._sockets.cleanup()


def _with_password(cluster: Cluster) -> str:
    """A database of a user with a password."""
    cluster.execute(f"CREATE ROLE service LOGIN PASSWORD '{SECRET}'")
    cluster.execute("CREATE DATABASE service OWNER service")
    return cluster.url("service").replace("postgres@", f"service:{SECRET}@")


def is_ready(url: str) -> bool:
    """Whether an API says that it can do its work."""
    try:
        return httpx2.get(f"{url}/readyz", timeout=10).status_code == 200
    except httpx2.HTTPError:
        return False
