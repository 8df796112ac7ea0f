"""Quotas hold on both databases when many add at once, on data sets whose accounts are locked apart."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from datalens_service.base.errors import QuotaExceeded
from datalens_service.store.access import quotas
from datalens_service.store.access.quotas import Quotas
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT

from .books import images, new_dataset, new_job

pytestmark = pytest.mark.both_databases


def test_jobs_on_different_data_sets_do_not_overlook_each_other(database: Database) -> None:
    datasets = [new_dataset(database, images(seed)).id for seed in range(6)]
    quotas.change(database, DEFAULT_TENANT, Quotas(jobs=2), actor="local")
    begin = threading.Barrier(len(datasets))

    def submit(dataset_id: str) -> bool:
        begin.wait()
        try:
            new_job(database, dataset_id, 1000)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(len(datasets)) as threads:
        assert sorted(threads.map(submit, datasets)) == [False] * 4 + [True] * 2
