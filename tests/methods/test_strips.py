"""Every registered method on images that are not square: it trains for what was planned, or its plan refuses them.

Methods come from the registry, and so do their variants: a new method, or a new choice of one, is tried by itself.
"""

import typing
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from datalens_service.base.errors import InvalidSpec
from datalens_service.methods import Method
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.training import public_images

from .builders import advance, dataset, start

EPSILON, DELTA = 8.0, 1e-3
RECORDS, CLASSES = 30, ("a", "b", "c")
STRIPS: Final = ((8, 24, 1), (32, 16, 1), (21, 15, 3))
"""Height, width, channels; each for every method as it is by default."""
IN_COLOUR: Final = (21, 15, 3)
"""For everything else that a method may be: convolutions fit it, and encoders see it at their own size."""

SMALL: Final[dict[str, Any]] = {
    "steps": 2, "epochs": 1, "iterations": 1, "samples": 100, "batch": 4, "accepted": 1.0,
    "num_teachers": 6, "images_per_step": 6, "warmup_steps": 1, "vote_dimensions": 9, "top_k": 5,
    "projections": 4, "bins": 4, "updates_per_generator_step": 1, "z_dim": 2, "refiner_width": 4,
    "subspace_dimensions": 4, "components": 2, "dimensions": 6, "hidden_units": 4,
    "width": 8, "blocks": 1, "pretraining_steps": 2, "pretraining_samples": 100,
}  # fmt: skip
"""Of parameters with such a name, in a method or in a part of one."""
NAMED: Final[dict[str, Any]] = {"steps": 2, "noise_multiplier": 8.0}
"""Of parameters without a default, or left out by default: pricing noise takes longer than such a run."""


def small(kind: type[BaseModel], **changes: Any) -> dict[str, Any]:
    """Parameters with which a method is quick, parts of it included."""
    chosen = dict(changes)
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            chosen.setdefault(name, small_part(type(default)))
        elif name in (NAMED if default in (None, PydanticUndefined) else SMALL):
            chosen.setdefault(name, (NAMED | SMALL)[name])
    return chosen


def small_part(kind: type[BaseModel]) -> dict[str, Any]:
    return small(kind, name=kind.model_fields["name"].default)


def choices(annotation: Any) -> Iterator[Any]:
    """What a parameter that is one of several words or parts may be."""
    if typing.get_origin(annotation) is typing.Literal:
        yield from typing.get_args(annotation)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield small_part(annotation)
    else:
        for inner in typing.get_args(annotation):
            yield from choices(inner)


def methods() -> list[Method]:
    return [kind.model_validate(small(kind)) for kind in typing.get_args(RegisteredMethod)]


def variants(method: Method) -> Iterator[tuple[str, Method]]:
    """Each choice of one parameter that the method's own checks allow alone."""
    kind = type(method)
    for name, field in kind.model_fields.items():
        for choice in choices(field.annotation) if name != "name" else ():
            try:
                changed = kind.model_validate(small(kind, **{name: choice}))
            except ValidationError:
                continue
            if changed != method:
                yield f"{name}-{choice['name'] if isinstance(choice, dict) else choice}", changed


def panel() -> Iterator[Any]:
    for method in methods():
        for shape in STRIPS:
            yield pytest.param(method, shape, id=f"{method.name}-{shape}")
        for word, changed in variants(method):
            yield pytest.param(changed, IN_COLOUR, id=f"{method.name}-{word}")


class QuickNoise:
    """Exact noise is what takes longest, and these records are nobody's."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        return np.rint(self._rng.normal(0, noise_stddev, shape)).astype(np.int64)

    def coins(self, count: int, numerator: int) -> np.ndarray:
        return self._rng.integers(0, 2, count).astype(bool)


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(("method", "shape"), tuple(panel()))
def test_a_method_takes_strips_or_its_plan_refuses_them(method: Method, shape: tuple[int, int, int]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (RECORDS, *shape), dtype=np.uint8)
    data = dataset(images, np.arange(RECORDS) % len(CLASSES), CLASSES)
    assert type(method).model_validate_json(method.model_dump_json()) == method
    try:
        plan = method.plan_within(data.schema, EPSILON, DELTA)
    except InvalidSpec:
        return
    training = start(method, data, plan, public=public_images(data) if method.needs_public_images else None)
    account = MemoryAccount(10**19, (EPSILON, DELTA))
    advance(training, account, noise=QuickNoise())
    path = training.begin().plan
    planned = [release.mechanism.label() for release in path.releases for _ in range(release.count)]
    assert [label for _, label, _ in account.charges] == planned
    assert Charge(account.charged_units, account.slack) == path.charge()
    result = training.result()
    assert result.result == method.result
    if result.result == "generator":
        assert result.sample(3, seed=0)[0].shape == (3, *shape)
    else:
        assert result.predict(data.train.images[:3]).shape == (3, len(CLASSES))
