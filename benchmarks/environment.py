"""Commit and machine, for every figure, and the public sets that stand in for a private one."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.source_commit import source_commit
from datalens_service.data import read_upload
from datalens_service.data.dataset import Dataset, Schema, Split, Upload

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("DATALENS_TEST_DATA") or ROOT / "build" / "data")
"""Where public sets lie; `python -m benchmarks.data` writes those that torchvision has."""

_TEN = tuple("0123456789")
SCHEMAS = {
    "mnist": Schema(channels=1, height=28, width=28, class_names=_TEN, num_units=60_000),
    "fashion_mnist": Schema(channels=1, height=28, width=28, class_names=_TEN, num_units=60_000),
    "cifar10": Schema(channels=3, height=32, width=32, class_names=_TEN, num_units=50_000),
    "smiles64": Schema(channels=1, height=64, width=64, class_names=("no", "yes"), num_units=11_000),
    "digits": Schema(channels=1, height=8, width=8, class_names=_TEN, num_units=1_438),
    "bccd": Schema(channels=3, height=32, width=32, class_names=("Platelets", "RBC", "WBC"), num_units=3_907),
    "signs": Schema(channels=3, height=64, width=64, class_names=_TEN, num_units=1_651),
}
"""Shapes of public sets, for what is planned without their images."""

# A constant: figures are made again with the same shards. (HMAC takes a key and the same with zeros behind it for one.)
PARTITION_KEY = b"benchmark".ljust(32, b"\0")

_HELD_OUT = 10_000
_SHORT = 8
_WRITTEN = ("benchmarks/results", "datalens_service/planning/measured.jsonl")


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
    """With `+` when files differ from it, those apart that benchmarks write; without git the digest of the sources."""
    known = source_commit(ROOT)
    if known.startswith("sha256:"):
        return known
    written = (f":!{path}" for path in _WRITTEN)
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "-uno", "--", ".", *written]
    changed = known.endswith("+") and subprocess.run(status, capture_output=True, text=True, check=True).stdout.strip()
    return known[:_SHORT] + ("+" if changed else "")


def data_path(name: str) -> Path:
    """The file of a public set: an NPZ, or a zip of class folders.

    Raises:
        FileNotFoundError: There is none.
    """
    for path in (DATA / f"{name}.npz", DATA / f"{name}.zip"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{DATA} has no {name}.npz. `python -m benchmarks.data {name}` writes it if torchvision has the set; "
        "docs/utility.md says where others come from. DATALENS_TEST_DATA names another folder."
    )


def public_set(name: str) -> Upload:
    """Images of a public set, as an upload of them is read."""
    return read_upload(data_path(name))


def dataset(name: str) -> Dataset:
    """A public set that stands in for a private one; the key of its shards is a constant here."""
    return Dataset(*public_set(name), partition_key=PARTITION_KEY)


def require_test_split(data: Dataset | Upload) -> Split:
    """The test images, which every set here has."""
    if data.test is None:
        raise SystemExit("the set has no test images")
    return data.test


def without_test_images(data: Dataset) -> Dataset:
    """For choosing settings: the last 10,000 training images take the place of the test images."""
    order = np.arange(len(data.train.labels))
    return replace(with_records(data, order[:-_HELD_OUT]), test=with_records(data, order[-_HELD_OUT:]).train)


def with_records(data: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The set with these of its training records alone, in this order."""
    train = Split(data.train.images[rows], data.train.labels[rows])
    schema = data.schema.model_copy(update={"num_units": len(rows)})
    return Dataset(schema, train, data.test, partition_key=PARTITION_KEY)


def draw_records(data: Dataset, count: int, seed: int) -> Dataset:
    """The set with so many training records, drawn by the seed."""
    return with_records(data, np.random.default_rng(seed).choice(len(data.train.labels), count, replace=False))


def make_set(shape: tuple[int, int, int], records: int, seed: int = 0) -> Dataset:
    """Random images of ten classes."""
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    schema = Schema(channels=channels, height=height, width=width, class_names=_TEN, num_units=records)
    images = rng.integers(0, 256, (records, *shape), dtype=np.uint8)
    return Dataset(schema, Split(images, np.arange(records) % 10), None, PARTITION_KEY)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
