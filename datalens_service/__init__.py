"""DataLens Service: private labelled images in, differentially private synthetic images out.

    import datalens_service as datalens

    schema, train, test = datalens.read_upload(Path("digits.npz"))
    dataset = datalens.Dataset(schema, train, test, partition_key=secrets.token_bytes(32))
    spec = datalens.TrainingSpec(method="moments", epsilon=1.0)
    account = datalens.MemoryAccount(spec.limit_units(schema))
    result = datalens.run(spec, dataset, account=account)
    images, labels = result.generator.sample(10_000)

Names are loaded when they are first used: a program that needs only the `Client` loads no NumPy, and nothing here loads
torch before a method trains a network.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from datalens_service.base.lazy_names import load_names

if TYPE_CHECKING:
    from datalens_service.base.errors import DatalensError
    from datalens_service.base.package_version import __version__ as __version__
    from datalens_service.client import AsyncClient, Client, ClientError
    from datalens_service.data import read_upload
    from datalens_service.data.dataset import Dataset, Schema, Split
    from datalens_service.data.digits import digits
    from datalens_service.methods import DataLens, Guided, Mixture, Moments, PooledMoments, Rejection, Shapes
    from datalens_service.models.classifiers.classifier import Classifier
    from datalens_service.models.generators.generator import Generator
    from datalens_service.planning.presets import preset
    from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
    from datalens_service.spec import TrainingSpec, vote_allowance
    from datalens_service.training import Result, run

# MKL reads this once, at its first product: rows are then rounded the same way wherever in memory they lie.
os.environ.setdefault("MKL_CBWR", "AUTO")

__getattr__ = load_names(
    __name__,
    {
        "client": "AsyncClient Client ClientError",
        "data": "read_upload",
        "data.dataset": "Dataset Schema Split",
        "data.digits": "digits",
        "base.errors": "DatalensError",
        "base.package_version": "__version__",
        "methods": "DataLens Guided Mixture Moments PooledMoments Rejection Shapes",
        "models.classifiers.classifier": "Classifier",
        "models.generators.generator": "Generator",
        "planning.presets": "preset",
        "privacy.budget": "MemoryAccount UnchargedAccount",
        "training": "Result run",
        "spec": "TrainingSpec vote_allowance",
    },
)

__all__ = [
    "AsyncClient", "Classifier", "Client", "ClientError", "DataLens", "DatalensError", "Dataset", "Generator", "Guided",
    "MemoryAccount", "Mixture", "Moments", "PooledMoments", "Rejection", "Result", "Schema", "Shapes", "Split",
    "TrainingSpec", "UnchargedAccount", "digits", "preset", "read_upload", "run", "vote_allowance",
]  # fmt: skip


def __dir__() -> list[str]:
    """List everything public, loaded or not."""
    return sorted({*globals(), *__all__})
