"""The shard of a privacy unit: a function of that unit alone.

HMAC-SHA256(key, unit id) mod shards, for class-pure shards together with the record's own label. Sizes, order
and labels of other units never enter, so emptying a unit changes exactly one shard; with class-pure shards, one
for each class it has records of.

A record without a declared group is identified by its position in the upload. Taking one out of the file moves those
behind it to other shards; the guarantee then rests on the key being secret, which makes their shards look as random as
before (docs/privacy.md, "Secrets").
"""

import hashlib
import hmac

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Labels, check_partition_key

Shards = NDArray[np.int64]


def assign_shards(
    key: bytes, unit_ids: NDArray[np.int64], num_shards: int, labels: Labels | None = None, num_classes: int = 1
) -> Shards:
    """Assign a shard to every record; records of one unit (and, with labels, of one class) share theirs.

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
        InvalidSpec: Class-pure shards cannot be shared out evenly among the classes.
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
    """Return the row numbers of each shard, in ascending order; a shard may be empty."""
    order = np.argsort(shards, kind="stable")
    boundaries = np.searchsorted(shards[order], np.arange(1, num_shards))
    return np.split(order, boundaries)


def _digest(key: bytes, unit: int) -> int:
    return int.from_bytes(hmac.digest(key, unit.to_bytes(8, "big"), hashlib.sha256)[:8], "big")
