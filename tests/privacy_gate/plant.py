"""What a planted bug is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


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


def replaced(owner: Any, name: str, planted: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Puts something else in the place of a member of a module or class."""
    return lambda patch: patch.setattr(owner, name, planted)
