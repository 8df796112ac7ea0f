"""Privacy units of several records: who belongs together, and how much one unit may hold.

By default a record is a unit. If a person may be in the data with several images, the upload names the person of
each training image and the owner declares, in public, how many records and classes one unit may have. An upload
with a unit that holds more is refused (`dataset.check_units`), so every cost may rest on the declaration.
"""

import hashlib
import hmac
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.data.dataset import Labels, UnitIds, check_partition_key
from datalens_service.errors import InvalidSpec
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
    classes: Integer | None = Field(default=None, ge=1, le=MAXIMUM_RECORDS_PER_UNIT)

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


Shards = NDArray[np.int64]


def assign_shards(
    key: bytes, unit_ids: NDArray[np.int64], num_shards: int, labels: Labels | None = None, num_classes: int = 1
) -> Shards:
    """Shard of every record; records of one unit (and, with labels, of one class) share theirs.

    Args:
        key: Secret of the data set, at least 16 bytes.
        unit_ids: (n,) identity of each record's unit; by default the position in the upload.
        num_shards: N, the public number of teachers.
        labels: (n,) labels for class-pure shards; None mixes the classes.
        num_classes: Declared classes; N/num_classes shards belong to each.

    Returns:
        int64 (n,) in [0, num_shards).

    Raises:
        InvalidDataset: The key is too short to be secret.
        InvalidSpec: Class-pure shards that cannot be dealt evenly to the classes.
    """
    check_partition_key(key)
    if labels is not None and (num_shards < num_classes or num_shards % num_classes):
        raise InvalidSpec(f"Class-pure shards must be a multiple of the {num_classes} classes.")
    known, numbers = np.unique(unit_ids, return_inverse=True)
    digests = np.array([_digest(key, int(unit)) for unit in known], dtype=np.uint64)[numbers]
    if labels is None:
        return (digests % np.uint64(num_shards)).astype(np.int64)
    per_class = num_shards // num_classes
    return labels * per_class + (digests % np.uint64(per_class)).astype(np.int64)


def members(shards: Shards, num_shards: int) -> list[NDArray[np.int64]]:
    """Row numbers of each shard, in ascending order; a shard may be empty."""
    order = np.argsort(shards, kind="stable")
    boundaries = np.searchsorted(shards[order], np.arange(1, num_shards))
    return np.split(order, boundaries)


def _digest(key: bytes, unit: int) -> int:
    return int.from_bytes(hmac.digest(key, unit.to_bytes(8, "big"), hashlib.sha256)[:8], "big")
