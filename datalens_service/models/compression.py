"""Sparse gradients: every function turns one row into one row, and looks at nothing else.

Which coordinates stay depends on the private row. That is sound because noise goes on all coordinates, and the
length of a row is what the mechanism's guard checks.
"""

import torch
from torch import Tensor

# float32 read as an integer grows with its value; without 19 low bits 4096 buckets cover all squares.
_DROPPED_BITS = 19
_BUCKETS = 2**12
# Few enough that they stay in the processor's cache.
_ROWS = 32


def keep_largest(rows: Tensor, count: int) -> Tensor:
    """The `count` coordinates of each row (n, d) with the largest squares; the others become 0."""
    places = rows.abs().topk(count, dim=1).indices
    return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))


def keep_energy(rows: Tensor, share: float) -> Tensor:
    """The largest coordinates of each row (n, d) whose squares add up to at most `share` of all its squares.

    Coordinates with nearly the same square stay or go together, so a little less than `share` may remain, and nothing
    at all where one coordinate holds more. Squares are compared with the squared norm (NormTopK).

    Args:
        rows: float32, private.
        share: In (0, 1].
    """
    kept = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    for part, result in zip(torch.split(rows, _ROWS), torch.split(kept, _ROWS), strict=True):
        finite = torch.where(torch.isfinite(part).all(dim=1, keepdim=True), part, 0.0).to(torch.float32)
        result.copy_(torch.where(_among_largest(finite, share), finite, 0.0))
    return kept


def _among_largest(rows: Tensor, share: float) -> Tensor:
    """Which coordinates of finite rows stay."""
    largest = rows.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    squares = (rows / largest).square()
    buckets = squares.view(torch.int32) >> _DROPPED_BITS
    energies = torch.zeros(len(rows), _BUCKETS, dtype=torch.float64, device=rows.device)
    energies.scatter_add_(1, buckets.to(torch.int64), squares.to(torch.float64))
    from_the_top = energies.flip(1).cumsum(dim=1).flip(1)
    too_much = from_the_top > share * from_the_top[:, :1]
    return buckets >= too_much.sum(dim=1, keepdim=True)
