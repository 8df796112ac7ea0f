"""What makes two worlds comparable byte by byte: ids, clock, secrets and noise begin anew in each."""

import datetime as calendar
import importlib
import json
import pkgutil
import secrets
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import datalens_service.services
import datalens_service.store
from datalens_service.base import clock
from datalens_service.models import released
from datalens_service.privacy import randomness
from datalens_service.report import build

NOW = calendar.datetime(2026, 3, 4, 5, 6, 7, tzinfo=calendar.UTC)


class Frozen(calendar.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: calendar.tzinfo | None = None) -> calendar.datetime:
        return NOW.astimezone(tz)


def freeze(patch: pytest.MonkeyPatch) -> None:
    """Ids, clock, secrets and noise begin anew: equal calls give equal values."""
    _load_all_that_makes_ids()
    for name, module in list(sys.modules.items()):
        if name.startswith(("api.", "datalens_service.")) and hasattr(module, "uuid4"):
            patch.setattr(module, "uuid4", counted(name))
    rng = np.random.default_rng(17)
    patch.setattr(randomness, "_words", lambda size: rng.integers(0, 2**64, size, dtype=np.uint64))
    patch.setattr(secrets, "token_bytes", lambda size: b"k" * size)
    patch.setattr(clock, "datetime", Frozen)
    patch.setattr(build, "datetime", SimpleNamespace(datetime=Frozen, UTC=calendar.UTC))
    patch.setattr(released, "save_file", save_in_order)


def save_in_order(tensors: dict[str, Any], path: Path, metadata: dict[str, str]) -> None:
    """The library writes metadata in an order that it draws anew each time: until it is that of the alphabet."""
    written: list[str] = []
    while written != sorted(metadata):
        save_file(tensors, path, metadata)
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        written = list(json.loads(content[8 : 8 + length])["__metadata__"])


def counted(name: str) -> Callable[[], uuid.UUID]:
    """Ids of one module, in turn: an account that is opened or not moves no other id."""
    numbers = iter(range(1, 2**32))
    return lambda: uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {next(numbers)}")


def _load_all_that_makes_ids() -> None:
    """A module that is imported later would make ids of its own."""
    for package in (datalens_service.store, datalens_service.services):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
