"""Dead leaves: pictures of shapes upon shapes, from a seed; public, and in many ways like photographs.

Lee, Mumford and Huang 2001, "Occlusion models for natural images": sizes follow a power law, so pictures look alike at
every scale. Baradad et al. 2021, "Learning to see by looking at noise", teach networks with such pictures; here they
show along which directions features of photographs vary, without a charge.
"""

from typing import Final, Literal

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.base.fields import Frozen
from datalens_service.data.dataset import Images, Schema
from datalens_service.methods.base import Plan

_IMAGES: Final = 256
"""Pictures drawn at once, few enough that they take little memory."""
_LEAVES: Final = 48
_SMALLEST, _LARGEST = 0.05, 0.6
"""Radii, as parts of an image's longer side."""
_GROUND, _LEAF, _OWN = 0.15, 0.2, 0.45
"""Deviations of brightness of a ground and of its leaves, and of one channel from the others, as a part of them."""
_SHADE, _STRIPES, _GRAIN = 0.12, 0.05, 0.02


class DeadLeaves(Frozen):
    """A start that releases nothing: pictures which a seed draws show how features vary, and give no first weights."""

    name: Literal["dead_leaves"] = "dead_leaves"

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan no releases, so that all of the budget is left."""
        return Plan(releases=())


def draw_dead_leaves(schema: Schema, count: int, rng: np.random.Generator) -> Images:
    """Draw pictures of the size of `schema`, uint8 (count, height, width, channels)."""
    return np.concatenate([_draw(schema, min(_IMAGES, count - first), rng) for first in range(0, count, _IMAGES)])


def _draw(schema: Schema, count: int, rng: np.random.Generator) -> Images:
    ground = 0.5 + _GROUND * _draw_colours(schema, count, rng)
    pixels = np.tile(ground, (1, 1, schema.height, schema.width))
    crowd = rng.uniform(0.1, 1, (count, 1, 1, 1))
    for _ in range(_LEAVES):
        cover, texture = _draw_leaf(schema, count, rng)
        colour = 0.25 + ground / 2 + _LEAF * _draw_colours(schema, count, rng)
        cover *= rng.random(crowd.shape) < crowd
        pixels += cover * (colour + texture - pixels)
    pixels += _GRAIN * rng.normal(size=crowd.shape) * rng.normal(size=pixels[:, :1].shape)
    return np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


def _draw_colours(schema: Schema, count: int, rng: np.random.Generator) -> Floats:
    """Draw colours (count, channels, 1, 1) of deviation about 1, similar in all channels."""
    own = rng.normal(size=(count, schema.channels, 1, 1))
    return np.asarray(rng.normal(size=(count, 1, 1, 1)) + _OWN * own)


def _draw_leaf(schema: Schema, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw an ellipse for each picture: its cover, and its shades and stripes, both (count, 1, height, width)."""
    longer = max(schema.height, schema.width)
    uniform, normal = rng.random((5, count, 1, 1, 1)), rng.normal(size=(4, count, 1, 1, 1))
    radius = np.minimum(_LARGEST, _SMALLEST * (1 - uniform[0]) ** -0.5) * longer
    stretch, angle = np.exp(normal[0] / 2), np.pi * uniform[1]
    rows, columns = np.ogrid[: schema.height, : schema.width]
    down, right = rows - (1.2 * uniform[2] - 0.1) * schema.height, columns - (1.2 * uniform[3] - 0.1) * schema.width
    along, across = np.cos(angle) * right + np.sin(angle) * down, np.cos(angle) * down - np.sin(angle) * right
    far, wide = along / (radius * stretch), across * stretch / radius
    # An edge is about a pixel wide.
    cover = np.clip((1 - np.hypot(far, wide)) * radius + 0.5, 0, 1)
    stripes = _STRIPES * normal[3] * np.sin((0.3 + 2 * uniform[4]) * across)
    return cover, _SHADE * (normal[1] * far + normal[2] * wide) + stripes
