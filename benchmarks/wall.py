"""What the wall costs: the same jobs without it, behind it, and with a process for every question, in one run.

    python -m benchmarks.wall [--units 1000] [--rounds 5]

Prints a line of JSON for each method, with times of a job as ratios: `wall` to the time without (the median of rounds,
in each of which both run), `apart` to that behind it (time that passes, since other processes compute).
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import numpy as np
import torch

from benchmarks.environment import provenance
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import private_records, unit_records
from datalens_service.mechanisms.confined import CallsHere
from datalens_service.mechanisms.unit_records import UnitVault
from datalens_service.mechanisms.vaults import Vaults
from datalens_service.methods import AnyMethod, DataLens, DpSgd, Mixture, Moments, Scattering
from datalens_service.methods.script import ExecutionOptions
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

METHODS: Final[dict[str, AnyMethod]] = {
    "moments": Moments(),
    "mixture": Mixture(),
    "scattering": Scattering(warm_start=Moments(), steps=5),
    "dp_sgd": DpSgd(architecture="small_cnn", steps=8),
    "dp_sgd, batches": DpSgd(architecture="small_cnn", steps=30, sampling="poisson", batch=256),
    "datalens": DataLens(teacher="dense", num_teachers=200, images_per_step=50, steps=5),
}


def released_bare(self: Vaults, handle: Any, mechanism: Any, contribution: Any, released: Any, **charged: Any) -> Any:
    """Release with whatever is heard meanwhile."""
    return self.of(handle).release(mechanism, contribution, released, **charged)


def without_the_wall() -> list[Any]:
    """Return patches: nothing is copied, protected, confined or silenced."""
    shared, copied = SimpleNamespace(deepcopy=lambda value: value), UnitVault._of

    def kept(self: UnitVault, batch: Any) -> Any:
        if batch is not None or self._kept is None:
            return copied(self, batch)
        return self._kept[0], np.unique(self._kept[1])

    return [
        mock.patch.object(Vaults, "release", released_bare),
        mock.patch.object(private_records, "copy", shared),
        mock.patch.object(unit_records, "copy", shared),
        mock.patch.object(private_records, "read_only", lambda array: array),
        mock.patch.object(UnitVault, "_of", kept),
        mock.patch.multiple(
            CallsHere, call=lambda _, of, *given: of(*given), items=lambda _, of, *given: iter(of(*given))
        ),
    ]


def seconds(method: AnyMethod, units: int, patches: list[Any], *, apart: bool = False) -> tuple[float, float]:
    """Return the time of the processor and the time that passed in a job."""
    rng = np.random.default_rng(0)
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("abcdefghij"), num_units=units)
    images = rng.integers(0, 256, (units, 28, 28, 1), dtype=np.uint8)
    dataset = Dataset(schema, Split(images, rng.integers(0, 10, units)), None, b"k" * 32)
    spec = TrainingSpec(method=method, epsilon=10.0, delta=1e-5)
    for patch in patches:
        patch.start()
    began = time.process_time(), time.perf_counter()
    run(spec, dataset, account=UnchargedAccount(), options=ExecutionOptions(apart=apart))
    took = time.process_time() - began[0], time.perf_counter() - began[1]
    for patch in patches:
        patch.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, method in METHODS.items():
        seconds(method, arguments.units, [])
        walls, aparts = [], []
        for _ in range(arguments.rounds):
            bare, walled = (seconds(method, arguments.units, one) for one in (without_the_wall(), []))
            own = seconds(method, arguments.units, [], apart=True)
            walls.append(walled[0] / bare[0])
            aparts.append(own[1] / walled[1])
        figures = {"wall": round(median(walls), 3), "apart": round(median(aparts), 3), "seconds": round(walled[1], 2)}
        print(json.dumps({"method": name, **vars(arguments), **figures, **provenance()}), flush=True)


if __name__ == "__main__":
    main()
