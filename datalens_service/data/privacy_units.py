"""Privacy units of several records: groups of records, and how many of them a declaration allows.

By default a record is a unit. If a person may be in the data with several images, the upload names the person of
each training image and the owner declares, in public, how many records and classes one unit may have. An upload
with a unit that holds more is refused (`dataset.check_units`), so every cost may rest on the declaration.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from datalens_service.base.fields import Frozen, Integer
from datalens_service.data.dataset import NOBODY, GroupIds, UnitIds

MAXIMUM_RECORDS_PER_UNIT = 1000
NAME_PATTERN = r"^[\w -]{1,40}$"

_IDENTITY_BITS = 63


class UnitDeclaration(Frozen):
    """The owner's public declaration of a privacy unit.

    Attributes:
        records: Most records of one unit.
        classes: Most classes that records of one unit belong to; None puts no bound beside `records`.
    """

    name: str | None = Field(default=None, pattern=NAME_PATTERN)
    records: Integer = Field(ge=1, le=MAXIMUM_RECORDS_PER_UNIT)
    classes: Integer | None = Field(default=None, ge=1)

    def bound_classes(self, num_classes: int) -> int:
        """Return the largest number of classes that one unit can reach."""
        return min(self.records, num_classes, self.classes or num_classes)


def group_key(name: str) -> str:
    """Return the key of a group, which is the same for names that differ only in case, in spaces or in invisible signs.

    Two spellings of one person must never be two privacy units: the promise to that person would be too weak. Two
    persons in one unit only cost accuracy.
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(sign for sign in plain if not sign.isspace() and unicodedata.category(sign) != "Cf")


def spell_groups(names: Iterable[str]) -> dict[str, str]:
    """Return one spelling of the group of each name, by the name: the first of the group's own in alphabetical order.

    No name of another group can change it. A group that is spelt in one way keeps the identity that it had in versions
    which told spellings apart.
    """
    first = dict[str, str]()
    keys = {name: group_key(name) for name in names}
    for name, key in keys.items():
        plain = unicodedata.normalize("NFC", name.strip())
        first[key] = min(plain, first.get(key, plain))
    return {name: first[key] for name, key in keys.items()}


def identities(names: Iterable[object]) -> UnitIds:
    """Identify every record's unit by a hash of the unit's own name, so that no other unit can move it.

    Args:
        names: One per record; numbers count as their decimal digits. Names with one `group_key` are one unit.

    Returns:
        int64 (n,), not negative.
    """
    texts = [str(name) for name in names]
    known = {name: _identity(spelling) for name, spelling in spell_groups(texts).items()}
    return np.array([known[name] for name in texts], dtype=np.int64)


def group_identities(names: Sequence[str | None]) -> GroupIds:
    """Identify every record's group by a hash of its key: the same in all splits and data sets; `NOBODY` for None."""
    known = {name: NOBODY if name is None else _identity(group_key(name)) for name in dict.fromkeys(names)}
    return np.array([known[name] for name in names], dtype=np.int64)


def _identity(plain: str) -> int:
    digest = hashlib.sha256(b"unit\0" + plain.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _IDENTITY_BITS)
