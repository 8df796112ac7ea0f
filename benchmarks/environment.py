"""Commit and machine, for every figure."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from datalens_service.data import read_upload
from datalens_service.data.dataset import Dataset, Split

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("DATALENS_TEST_DATA", ROOT.parent / "shared" / "data"))

# A constant: figures are made again with the same shards. (HMAC takes a key and the same with zeros behind it for one.)
PARTITION_KEY = b"benchmark".ljust(32, b"\0")

_HELD_OUT = 10_000
_WRITTEN = ("benchmarks/results", "datalens_service/planning/expectations.json")


def provenance() -> dict[str, Any]:
    """Commit, processor and versions."""
    return {
        # Named from outside where the files travelled without their history.
        "commit": os.environ.get("DATALENS_BENCHMARK_COMMIT") or _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {_processor()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _commit() -> str:
    """With `+` when files differ from it, those apart that benchmarks write."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    status = [*git, "status", "--porcelain", "-uno", "--", ".", *(f":!{path}" for path in _WRITTEN)]
    changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    return commit.strip() + ("+" if changed.strip() else "")


def dataset(name: str) -> Dataset:
    """A public set that stands in for a private one; the key of its shards is a constant here."""
    return Dataset(*read_upload(next(DATA.glob(f"{name}.*"))), partition_key=PARTITION_KEY)


def without_test_images(data: Dataset) -> Dataset:
    """For choosing settings: the last 10,000 training images take the place of the test images."""
    count = len(data.train) - _HELD_OUT
    train, held_out = (
        Split(data.train.images[rows], data.train.labels[rows]) for rows in (slice(count), slice(count, None))
    )
    schema = data.schema.model_copy(update={"num_units": count})
    return Dataset(schema, train, held_out, partition_key=PARTITION_KEY)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
