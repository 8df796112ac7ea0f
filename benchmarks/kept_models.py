"""Generators that benchmarks keep in a folder, to measure one again without training it again."""

from __future__ import annotations

import hashlib
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
        """By title, if all of them were kept."""
        paths = [self._path(number) for number in range(len(titles))]
        if any(path is None or not path.exists() for path in paths):
            return None
        return {title: Generator.load(path) for title, path in zip(titles, paths, strict=True) if path is not None}

    def save(self, generators: Mapping[str, Generator]) -> None:
        """In the order in which `load` names them."""
        for number, generator in enumerate(generators.values()):
            path = self._path(number)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                generator.save(path)

    def _path(self, number: int) -> Path | None:
        return None if self._folder is None else self._folder / f"{self._stem}-{number}.safetensors"
