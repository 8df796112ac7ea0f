"""A generator of public images as another package brings one: smooth images whose brightness is theirs alone."""

import numpy as np

from datalens_service.data.dataset import Images, Schema


class Tiny:
    """Two tones, one above the other, whatever the class."""

    def __init__(self, schema: Schema) -> None:
        self._shape = (schema.height, schema.width, schema.channels)

    def random(self, count: int, label: int, seed: int) -> Images:
        tones = np.random.default_rng([seed, label]).integers(0, 256, (count, 2, 1, 1, self._shape[2]))
        return self._drawn(tones)

    def variations(self, images: Images, label: int, seed: int) -> Images:
        moved = np.random.default_rng([seed, label]).integers(-20, 21, (len(images), 2, 1, 1, self._shape[2]))
        return self._drawn(np.stack([images[:, :1, :1], images[:, -1:, :1]], axis=1) + moved)

    def _drawn(self, tones: np.ndarray) -> Images:
        """Of tones (n, 2, 1, 1, channels)."""
        above = (np.arange(self._shape[0]) < self._shape[0] // 2)[None, :, None, None]
        images = np.where(above, tones[:, 0], tones[:, 1]).clip(0, 255).astype(np.uint8)
        return np.broadcast_to(images, (len(tones), *self._shape)).copy()
