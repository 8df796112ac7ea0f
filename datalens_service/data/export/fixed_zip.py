"""Zip entries that are the same bytes on every run and every system."""

import zipfile
from typing import Final

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_READABLE: Final = 0o100644 << 16


def fixed_entry(name: str, compression: int) -> zipfile.ZipInfo:
    """An entry without clock, user or operating system in it."""
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.create_system, entry.external_attr, entry.compress_type = _UNIX, _READABLE, compression
    return entry
