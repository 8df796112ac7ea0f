"""Generators that benchmarks keep in a folder, to measure one again without training it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from datalens_service.models.generators.generator import Generator
from datalens_service.spec import TrainingSpec


class KeptModels:
    """Files by data and specification, so that another setting never finds them.

    Args:
        folder: Where they are; None keeps nothing.
        data: Names the images that they were trained on.
        spec: How they were trained.
    """

    def __init__(self, folder: Path | None, data: str, spec: TrainingSpec) -> None:
        digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:12]
        self._folder, self._stem = folder, f"{data}-{digest}"

    def load(self, titles: Sequence[str]) -> dict[str, Generator] | None:
        """By title, if all of them were kept, in which case `seconds` are those of their training."""
        paths = [self._path(number) for number in range(len(titles))]
        if any(path is None or not path.exists() for path in paths):
            return None
        return {title: Generator.load(path) for title, path in zip(titles, paths, strict=True) if path is not None}

    def seconds(self) -> float | None:
        """Processor seconds of the training that made what is kept; None if they were not noted."""
        path = self._noted()
        return float(json.loads(path.read_text())) if path is not None and path.exists() else None

    def save(self, generators: Mapping[str, Generator], seconds: float | None = None) -> None:
        """In the order in which `load` names them, with the processor seconds of their training if they are known."""
        for number, generator in enumerate(generators.values()):
            path = self._path(number)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                generator.save(path)
        noted = self._noted()
        if noted is not None and seconds is not None:
            noted.write_text(json.dumps(round(seconds, 1)) + "\n")

    def _noted(self) -> Path | None:
        return None if self._folder is None else self._folder / f"{self._stem}-seconds.json"

    def _path(self, number: int) -> Path | None:
        return None if self._folder is None else self._folder / f"{self._stem}-{number}.safetensors"
