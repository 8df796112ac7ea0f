"""Ways to draw batches whose releases are charged as one, before the first of them."""

from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.poisson_sampling import PoissonSampling

Block = PoissonSampling | PartitionedPasses
"""Told apart by their fields; each has `num_units`, `draws`, `slack`, `charge`, `check_price` and `draw_batch`."""
