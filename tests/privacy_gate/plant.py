"""What a planted bug is, and three ways to write one down: each makes a `Plant` of a function.

The first two arguments of each are the plant's name and reference.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from datalens_service.mechanisms.vaults import Vaults


@dataclass(frozen=True)
class Plant:
    """A privacy bug, small enough to be overlooked in a review.

    Attributes:
        name: What goes wrong.
        reference: Defect of the original (B…: docs/defects.md) or requirement (R…: docs/requirements.md).
        apply: Puts it into the product; undone with the patch.
    """

    name: str
    reference: str
    apply: Callable[[pytest.MonkeyPatch], None]


class Change(NamedTuple):
    """What a plant needs besides."""

    owner: Any
    member: str
    changed: Any


Planted = Callable[[Callable[..., Any]], Plant]


def vault_of(handle: Any) -> Any:
    """What a handle stands for: as whoever means harm finds it, since no plant can reach it otherwise."""
    vaults = next(one for one in gc.get_objects() if type(one) is Vaults and handle in one._vaults)
    return vaults.of(handle)


def plant(name: str, reference: str) -> Planted:
    """The function puts the bug into the product itself, by a patch that it is given."""
    return functools.partial(Plant, name, reference)


def replaces(name: str, reference: str, owner: Any, member: str, beside: Change | None = None) -> Planted:
    """The function stands in the place of a member of the product, as it is: the wall takes no other.

    Args:
        name: Of the plant.
        reference: Of the plant.
        owner: Module or class, or several of them.
        member: Function, method or property.
        beside: Without which the bug would not show.
    """
    return lambda planted: _of_member(name, reference, owner, member, beside, lambda _original: _found_by_name(planted))


def around(name: str, reference: str, owner: Any, member: str, beside: Change | None = None) -> Planted:
    """The same, but the function gets what the product has in that place as its first argument."""
    return lambda planted: _of_member(name, reference, owner, member, beside, functools.partial(_calling, planted))


def change(owner: Any, member: str) -> Callable[[Any], Change]:
    """The function stands in the place of a member, as it is, beside a plant."""
    return lambda changed: Change(owner, member, _found_by_name(changed))


def _found_by_name(planted: Any) -> Any:
    """The same function under a name of its module, by which processes of teachers find it: its own is the plant's."""
    planted.__qualname__ = f"{planted.__name__}_as_planted"
    setattr(sys.modules[planted.__module__], planted.__qualname__, planted)
    return planted


def _calling(planted: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: planted(original, *arguments, **named)


def _of_member(
    name: str,
    reference: str,
    owner: Any,
    member: str,
    beside: Change | None,
    made_of: Callable[[Any], Callable[..., Any]],
) -> Plant:
    def apply(patch: pytest.MonkeyPatch) -> None:
        if beside is not None:
            patch.setattr(*beside)
        for one in owner if isinstance(owner, tuple) else (owner,):
            static = inspect.getattr_static(one, member)
            is_property = isinstance(static, property)
            made = made_of(static.fget if is_property else getattr(one, member))
            patch.setattr(one, member, property(made) if is_property else made)

    return Plant(name, reference, apply)
