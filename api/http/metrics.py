"""Prometheus metrics from the database, made anew at every scrape; docs/observe.md has the table.

Nothing here depends on private records: states, times of submission, and what the public journals say. Datasets
are named by their random ids, never by what somebody called them.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from datalens_service.adapters.health import Surroundings
from datalens_service.base.audience import public_part
from datalens_service.services.overview import Overview
from datalens_service.store.ledger.account_summary import AccountSummary

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


REFUSALS: Final = ("datalens_sign_ins_refused", "Requests and sign-ins whose key is none, to this process.")
"""Name and description of what `Services.refusals` counts."""


def exposition(overview: Overview, surroundings: Surroundings, refusals: Counter) -> bytes:
    """The text format that Prometheus reads."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(refusals)
    registry.register(_Collector(public_part(overview), surroundings))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, overview: Overview, surroundings: Surroundings) -> None:
        self._overview = overview
        self._surroundings = surroundings

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("datalens", "Version of the service.", {"version": version("datalens-service")})
        yield from _jobs(self._overview)
        yield CounterMetricFamily("datalens_ledger_entries", "Lines of all journals.", self._overview.entries)
        frozen = self._overview.frozen_accounts
        yield GaugeMetricFamily("datalens_accounts_frozen", "Accounts that release nothing.", frozen)
        yield from _budgets(self._overview.accounts)
        yield from _parts(self._surroundings)


def _jobs(overview: Overview) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("datalens_jobs", "Jobs by state.", labels=["state"])
    for state, count in overview.jobs.items():
        jobs.add_metric([state], count)
    waiting = GaugeMetricFamily("datalens_queue_jobs", "Jobs that wait for a worker.", labels=["queue"])
    age = GaugeMetricFamily("datalens_queue_oldest_seconds", "Age of the job that waits longest.", labels=["queue"])
    for queue in overview.waiting:
        waiting.add_metric([queue.queue], queue.jobs)
        age.add_metric([queue.queue], queue.oldest_seconds)
    steps = "Releases charged in the last whole minute."
    lost = "Running jobs whose workers are silent, and that no worker has taken over."
    failed = GaugeMetricFamily("datalens_jobs_failed", "Jobs that failed within the hour.", labels=["reason"])
    for reason, count in overview.failed.items():
        failed.add_metric([reason], count)
    yield from (jobs, waiting, age, failed)
    yield GaugeMetricFamily("datalens_jobs_without_worker", lost, overview.without_worker)
    yield GaugeMetricFamily("datalens_steps_per_second", steps, overview.steps_per_second)


def _parts(surroundings: Surroundings) -> Iterator[Metric]:
    degraded = GaugeMetricFamily("datalens_degraded", "Whether a part is not in order.", labels=["part"])
    for part in surroundings.parts:
        degraded.add_metric([part], part in surroundings.faults)
    free = GaugeMetricFamily("datalens_disk_free_bytes", "Room on a disk of the service.", labels=["disk"])
    for disk, free_bytes in surroundings.free_bytes().items():
        free.add_metric([disk], free_bytes)
    yield from (degraded, free)


def _budgets(accounts: dict[str, AccountSummary]) -> Iterator[Metric]:
    named = {
        "limit": "Lifetime budget of a dataset.",
        "reserved": "Reserved by jobs that have not ended.",
        "spent": "Charged by all jobs on its records, rounded up.",
        "remaining": "What a new job may ask for, rounded down.",
    }
    families = {
        name: GaugeMetricFamily(f"datalens_epsilon_{name}", f"{text} ε at the dataset's δ.", labels=["dataset"])
        for name, text in named.items()
    }
    for dataset_id, account in accounts.items():
        values = account.figures().model_dump()
        for name, family in families.items():
            family.add_metric([dataset_id], values[f"epsilon_{name}"])
    yield from families.values()
