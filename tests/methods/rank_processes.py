"""A DataLens run shared by forked ranks, with the product's own code; each rank writes down what it did."""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datalens_service.base.errors import DatalensError
from datalens_service.base.process_group import ProcessGroup, join_process_group, read_rendezvous
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.mechanisms.private_shards import run_follower
from datalens_service.methods import DataLens, ExecutionOptions
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from ports import free_port

RECORDS, SIDE, CLASSES, TEACHERS = 400, 8, 2, 256
SCHEMA = Schema(channels=1, height=SIDE, width=SIDE, class_names=("up", "down"), num_units=RECORDS)

Before = Callable[[ProcessGroup], None]


def share(rank: int, world_size: int, parts: list[range]) -> list[range]:
    """What a rank of so many gets."""
    group = ProcessGroup()
    group.rank, group.world_size = rank, world_size
    return group.share(parts)


def spec_of(**changes: Any) -> TrainingSpec:
    settings = {
        "num_teachers": TEACHERS, "images_per_step": 4, "top_k": 8, "steps": 3, "teacher_batch": 2,
        "teacher_warmup_steps": 2, "z_dim": 4, "threshold": "none",
    }  # fmt: skip
    return TrainingSpec(method=DataLens(**(settings | changes)), epsilon=8.0, seed=1)


def upload(seed: int = 0) -> Upload:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (RECORDS, SIDE, SIDE, 1)).astype(np.uint8)
    return Upload(SCHEMA, Split(images, np.arange(RECORDS) % CLASSES), None)


def together(
    folder: Path, count: int, spec: TrainingSpec, before: Before | None = None, timeout: int = 240
) -> list[multiprocessing.Process]:
    """Start all ranks; `before` is called in each, once it has met the others."""
    port = str(free_port())
    context = multiprocessing.get_context("fork")
    processes = []
    for rank in range(count):
        # As torchrun does.
        environment = {
            "TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
        }  # fmt: skip
        process = context.Process(target=_work, args=(folder, spec, environment, before, timeout))
        process.start()
        processes.append(process)
    return processes  # type: ignore[return-value]


def ends(processes: list[multiprocessing.Process]) -> list[int | None]:
    """Exit codes, after a wait that no test should need."""
    for process in processes:
        process.join(280)
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def written(folder: Path, rank: int = 0) -> dict[str, Any]:
    return pickle.loads((folder / str(rank)).read_bytes())  # noqa: S301


def silent(draws: list[int]) -> Callable[..., np.ndarray]:
    def draw(self: NoiseSource, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        draws.append(int(np.prod(shape)))
        return np.zeros(shape, dtype=np.int64)

    return draw


def lead(spec: TrainingSpec, ranks: ProcessGroup, account: MemoryAccount) -> dict[str, np.ndarray]:
    dataset = Dataset(*upload(), partition_key=b"k" * 32)
    return run(spec, dataset, account=account, options=ExecutionOptions(group=ranks)).generator.tensors


def _work(folder: Path, spec: TrainingSpec, environment: dict[str, str], before: Before | None, timeout: int) -> None:
    # The threads of the parent's pools were not forked.
    torch.set_num_threads(1)
    os.environ.update(environment)
    draws: list[int] = []
    NoiseSource.discrete_gaussian = silent(draws)  # type: ignore[method-assign]
    account = MemoryAccount(spec.limit_units(SCHEMA))
    found: dict[str, Any] = {"draws": draws, "charges": account.charges, "sums": account._stored, "error": None}
    try:
        with join_process_group(timeout, read_rendezvous()) as ranks:
            if before is not None:
                before(ranks)
            if ranks.rank:
                run_follower(ranks, upload())
            else:
                found["tensors"] = lead(spec, ranks, account)
    except DatalensError as error:
        found["error"] = type(error).__name__
    (folder / environment["RANK"]).write_bytes(pickle.dumps(found))
    sys.exit(0 if found["error"] is None else 1)
