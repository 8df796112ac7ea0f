"""Types of arrays that have no other name."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Tensors = dict[str, Floats32]
"""Arrays by name, as a safetensors file has them."""
