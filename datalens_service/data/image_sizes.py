"""How large images may be."""

from __future__ import annotations

from typing import Final

MAXIMUM_SIDE: Final = 256
"""Pixels."""
