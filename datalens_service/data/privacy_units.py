"""Privacy units of several records: who belongs together, and how much one unit may hold.

By default a record is a unit. If a person may be in the data with several images, the upload names the person of
each training image and the owner declares, in public, how many records and classes one unit may have. An upload
with a unit that holds more is refused (`dataset.check_units`), so every cost may rest on the declaration.
"""

import hashlib
import unicodedata
from collections.abc import Iterable

import numpy as np
from pydantic import Field

from datalens_service.data.dataset import UnitIds
from datalens_service.strict import Frozen, Integer

MAXIMUM_RECORDS_PER_UNIT = 1000
NAME_PATTERN = r"^[\w -]{1,40}$"

_IDENTITY_BITS = 63


class UnitDeclaration(Frozen):
    """What the owner says one privacy unit is; public.

    Attributes:
        records: Most records of one unit.
        classes: Most classes that records of one unit belong to; None puts no bound beside `records`.
    """

    name: str | None = Field(default=None, pattern=NAME_PATTERN)
    records: Integer = Field(ge=1, le=MAXIMUM_RECORDS_PER_UNIT)
    classes: Integer | None = Field(default=None, ge=1)

    def bound_classes(self, num_classes: int) -> int:
        """Most classes that one unit can reach."""
        return min(self.records, num_classes, self.classes or num_classes)


def identities(names: Iterable[object]) -> UnitIds:
    """Identity of every record's unit: a hash of the unit's own name, so no other unit can move it.

    Args:
        names: One per record; numbers count as their decimal digits, blanks around a name and the way its accents
            are composed do not count.

    Returns:
        int64 (n,), not negative.
    """
    known: dict[str, int] = {}
    unit_ids = []
    for name in map(str, names):
        if name not in known:
            known[name] = _identity(name)
        unit_ids.append(known[name])
    return np.array(unit_ids, dtype=np.int64)


def _identity(name: str) -> int:
    plain = unicodedata.normalize("NFC", name.strip())
    digest = hashlib.sha256(b"unit\0" + plain.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _IDENTITY_BITS)
