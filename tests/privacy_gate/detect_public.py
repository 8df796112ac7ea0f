"""Detector on images that are declared public: no private data set passes for one."""

import numpy as np

from datalens_service.data.dataset import Images
from datalens_service.errors import DatalensError, InvalidDataset, InvalidSpec
from datalens_service.jobs import execute
from datalens_service.services import pricing
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset
from store.books import DELTA, EPSILON, images, new_dataset, new_job, schema

from .alarm import expect, refused
from .detect_ledger import _database


def private_records_never_pass_for_public(_rng: np.random.Generator) -> None:
    """R53: neither when a job is priced, nor when it runs, nor when images are declared public."""
    with _database() as database:
        private, other = new_dataset(database, images(seed=1)), new_dataset(database, images(seed=2))
        public = _declared(database, images(seed=3))
        tenant = private.tenant_id
        allowed = pricing.check_public_data(database, tenant, public.id, private)
        expect(allowed.id == public.id, "what was declared public may be used")
        with refused(InvalidSpec, "a private data set is no start"):
            pricing.check_public_data(database, tenant, other.id, private)
        with refused(InvalidDataset, "a private image is not declared public later"):
            _declared(database, np.concatenate([images(seed=4), images(seed=1)[3:4]]))
        shared = new_dataset(database, np.concatenate([images(seed=3)[:10], images(seed=5)[:10]]))
        with refused(InvalidSpec, "images that are in both data sets are no start"):
            pricing.check_public_data(database, tenant, public.id, shared)
        job = new_job(database, private.id, 1)
        with refused(DatalensError, "a worker asks again"):
            execute._public(database, other.id, job)


def _declared(database: Database, records: Images) -> StoredDataset:
    return datasets.create(
        database,
        dataset_id=datasets.new_id(),
        name="open pets",
        schema=schema(len(records)).model_copy(update={"records_are_public": True}),
        images=records,
        format="npz",
        has_test=False,
        records_path="/nowhere",
        epsilon=EPSILON,
        delta=DELTA,
    )
