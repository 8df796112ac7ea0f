"""How images get better while a job trains: fidelity after every few releases, beside the seconds so far.

    python -m benchmarks.progress --row diffusion --dataset fashion_mnist --epsilon 1 --every 15 --out …

A job that is stopped there hands out these images. Each row says how many releases of all were made, processor seconds
of training until then, and the figures of `benchmarks.fidelity` for `--images` samples. `--models FOLDER` keeps the
last model for `benchmarks.utility`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.environment import dataset, provenance
from benchmarks.fidelity import Fidelity
from benchmarks.kept_models import KeptModels
from benchmarks.rows import ROWS
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import run


class Curve:
    """Measures a run between its steps; measuring takes no time of its.

    Args:
        fidelity: Of samples.
        images: Samples to measure.
        every: Releases between two points.
    """

    def __init__(self, fidelity: Fidelity, images: int, every: int) -> None:
        self._fidelity, self._images, self._every = fidelity, images, every
        self._began, self._made, self._planned = time.process_time(), 0, 0
        self.points: list[dict[str, Any]] = []

    def observe(self, _phase: str, made: int, planned: int) -> None:
        """Take note of how far the run is."""
        self._made, self._planned = made, planned

    def due(self) -> bool:
        """Whether enough releases were made since the last point."""
        last = self.points[-1]["releases"] if self.points else 0
        return self._made + 1 - last >= self._every

    def show(self, model: ReleasedModel) -> None:
        """Measure a model after the release that was just made."""
        self._add(model, self._made + 1)

    def finish(self, model: ReleasedModel) -> None:
        """Measure the model that is handed out."""
        self._add(model, self._planned)

    def _add(self, model: ReleasedModel, releases: int) -> None:
        paused = time.process_time()
        if not isinstance(model, Generator):
            raise SystemExit("this row has no images")
        images, labels = model.sample(self._images, seed=0)
        seconds = round(paused - self._began, 1)
        figures = self._fidelity.of(images, labels)
        self.points.append({"releases": releases, "of": self._planned, "seconds": seconds, **figures})
        self._began += time.process_time() - paused


def main() -> None:
    """Train once, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", choices=list(ROWS), default="diffusion")
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="fashion_mnist")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of a trial")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--every", type=int, default=15, metavar="RELEASES")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="also keep the last model")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    origin, data = provenance(), dataset(options.dataset)
    spec = ROWS[options.row].options(options.epsilon, 1e-5, 0, tuple(options.settings)).build_spec(data.schema)
    curve = Curve(Fidelity(options.dataset, data, False, None), options.images, options.every)
    result = run(spec, data, account=UnchargedAccount(), observe=curve.observe, previews=curve)
    KeptModels(options.models, options.dataset, spec).save({"": result.generator})
    curve.finish(result.generator)
    named = {name: getattr(options, name) for name in ("dataset", "row", "epsilon", "settings", "images")}
    text = json.dumps({**origin, **named, "delta": 1e-5, "points": curve.points}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
