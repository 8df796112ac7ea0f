"""Images that are drawn by rules alone: soft backgrounds, textures, shapes and strokes, of any size and colour.

A picture is a point of the unit cube: colours of a background and its waves, then layers from back to front, each an
ellipse, a rectangle, a ring or a bent stroke. A variation moves the point. No image and no weights went into this.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema

Points = NDArray[np.float32]
"""Pictures as points (n, parameters) of the unit cube, or some of their coordinates."""
Planes = NDArray[Any]
"""A value of each pixel, (n, height, width)."""

_COLOURS: Final = 4
_WAVES: Final = 3
_LAYERS: Final = 3
_BENDS: Final = 4
_BACKGROUND: Final = 2 * _COLOURS + 1 + 4 * _WAVES
_LAYER: Final = 7 + _COLOURS + 2 * _BENDS
PARAMETERS: Final = _BACKGROUND + _LAYERS * _LAYER

_SEGMENTS: Final = 12
_SMALLEST_STEP: Final = 0.02
_LARGEST_STEP: Final = 0.3
_REDRAWN: Final = 0.03
"""Share of the coordinates that a variation draws anew."""
_PLAIN: Final = 0.5
"""Share of random pictures that are strokes on a plain ground, as writing is."""
_PIXELS_AT_ONCE: Final = 2**20
_REMEMBERED: Final = 2**18


class Rendered:
    """Draws pictures and variations of those that it drew.

    It remembers the points of the last 262,144 pictures, public as they are, by a hash of their pixels. Others it
    varies by moving and brightening them.

    Args:
        schema: Public schema of the images to make.
    """

    def __init__(self, schema: Schema) -> None:
        self._shape = (schema.height, schema.width, schema.channels)
        self._points: dict[bytes, Points] = {}

    def random(self, count: int, label: int, seed: int) -> Images:
        rng = np.random.default_rng([seed, label])
        points = rng.random((count, PARAMETERS), dtype=np.float32)
        return self._draw(_simplify(points, rng))

    def variations(self, images: Images, label: int, seed: int) -> Images:
        rng = np.random.default_rng([seed, label])
        known = [self._points.get(_digest(image)) for image in images]
        nowhere = np.zeros(PARAMETERS, dtype=np.float32)
        points = np.stack([nowhere if point is None else point for point in known])
        foreign = np.array([point is None for point in known])
        made = self._draw(_move(points, rng))
        made[foreign] = _shift(images[foreign], rng)
        return made

    def _draw(self, points: Points) -> Images:
        height, width, _ = self._shape
        many = max(1, _PIXELS_AT_ONCE // (height * width))
        parts = [render(points[start : start + many], self._shape) for start in range(0, len(points), many)]
        images = np.concatenate(parts)
        self._points.update((_digest(image), point) for image, point in zip(images, points, strict=True))
        for digest in list(self._points)[: max(0, len(self._points) - _REMEMBERED)]:
            del self._points[digest]
        return images


def _digest(image: Images) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def _simplify(points: Points, rng: np.random.Generator) -> Points:
    """Make some pictures plain: an even ground, black or white, with bright or dark strokes and nothing else."""
    plain = rng.random(len(points)) < _PLAIN
    dark = (rng.random(len(points)) < 0.5).astype(np.float32)
    background, layers = points[:, :_BACKGROUND], points[:, _BACKGROUND:].reshape(len(points), _LAYERS, _LAYER)
    background[plain, : 2 * _COLOURS] = dark[plain, None] * 0.98 + 0.01
    background[plain, 2 * _COLOURS + 1 :: 4] = 0
    layers[plain, :, 1] = 1 - 0.25 * layers[plain, :, 1]
    layers[plain, :, 7 : 7 + _COLOURS] = (1 - dark)[plain, None, None] * 0.98 + 0.01
    return points


def _move(points: Points, rng: np.random.Generator) -> Points:
    """Move each point a step of its own length, reflected where it would leave the cube."""
    lengths = np.exp(rng.uniform(np.log(_SMALLEST_STEP), np.log(_LARGEST_STEP), (len(points), 1)))
    moved = points + lengths * rng.normal(size=points.shape)
    redrawn = rng.random(points.shape) < _REDRAWN * lengths / _LARGEST_STEP
    moved = np.where(redrawn, rng.random(points.shape), moved)
    reflected: Points = (1 - np.abs(1 - np.abs(moved) % 2)).astype(np.float32)
    return reflected


def _shift(images: Images, rng: np.random.Generator) -> Images:
    """Move images by up to an eighth of their size, and brighten or darken them."""
    height, width = images.shape[1:3]
    made = images.astype(np.float32) + rng.normal(scale=12, size=(len(images), 1, 1, 1))
    for image in made:
        down, right = (int(rng.integers(-size // 8, size // 8 + 1)) for size in (height, width))
        image[:] = np.roll(image, (down, right), axis=(0, 1))
    shifted: Images = made.clip(0, 255).astype(np.uint8)
    return shifted


def render(points: Points, shape: tuple[int, int, int]) -> Images:
    """Draw pictures.

    Args:
        points: (n, PARAMETERS) in [0, 1].
        shape: Height, width and channels, at most 4.

    Returns:
        uint8 (n, height, width, channels).
    """
    height, width, channels = shape
    longest = max(height, width)
    down = ((np.arange(height, dtype=np.float32) + 0.5) * 2 - height) / longest
    right = ((np.arange(width, dtype=np.float32) + 0.5) * 2 - width) / longest
    x, y = np.broadcast_to(right, (1, height, width)), np.broadcast_to(down[:, None], (1, height, width))
    canvas = _draw_background(points[:, :_BACKGROUND], x, y, channels)
    for layer in points[:, _BACKGROUND:].reshape(len(points), _LAYERS, _LAYER).transpose(1, 0, 2):
        cover = _cover(layer, x, y, 2 / longest)[..., None]
        canvas += cover * (layer[:, None, None, 7 : 7 + channels] - canvas)
    drawn: Images = np.rint(canvas.clip(0, 1) * 255).astype(np.uint8)
    return drawn


def _draw_background(points: Points, x: Planes, y: Planes, channels: int) -> NDArray[np.float32]:
    """Blend from one colour to another, in a direction, with waves on top."""
    first, second = points[:, None, None, :channels], points[:, None, None, _COLOURS : _COLOURS + channels]
    angle = points[:, 2 * _COLOURS, None, None] * np.float32(2 * np.pi)
    share = 0.5 + 0.5 * (np.cos(angle) * x + np.sin(angle) * y)
    canvas: NDArray[np.float32] = first + share.clip(0, 1)[..., None] * (second - first)
    for wave in points[:, 2 * _COLOURS + 1 :].reshape(len(points), _WAVES, 4).transpose(1, 0, 2):
        strength, frequency, direction, phase = wave.T[:, :, None, None]
        turned = np.cos(np.pi * direction) * x + np.sin(np.pi * direction) * y
        height = 0.3 * strength**2 * np.cos(np.exp(4 * frequency) * turned + 2 * np.pi * phase)
        canvas = canvas + height[..., None].astype(np.float32)
    return canvas


def _cover(layer: Points, x: Planes, y: Planes, pixel: float) -> Planes:
    """Return how much of each pixel a layer covers, in [0, 1], by its distance from the edge of the shape."""
    kind, size, aspect = layer[:, 1], 0.15 + 0.75 * layer[:, 4], np.exp(1.6 * (layer[:, 5] - 0.5))
    turn = np.pi * layer[:, 6, None, None]
    across, along = x - 1.6 * (layer[:, 2, None, None] - 0.5), y - 1.6 * (layer[:, 3, None, None] - 0.5)
    u = np.cos(turn) * across + np.sin(turn) * along
    v = np.cos(turn) * along - np.sin(turn) * across
    u, v, distance = u / aspect[:, None, None], v * aspect[:, None, None], np.empty(u.shape, dtype=np.float32)
    bounds = np.searchsorted([0.25, 0.45, 0.55], kind)
    for number, shape in enumerate((_ellipse, _rectangle, _ring)):
        chosen = bounds == number
        distance[chosen] = shape(u[chosen], v[chosen], size[chosen, None, None])
    strokes = bounds == len((_ellipse, _rectangle, _ring))
    distance[strokes] = _stroke(layer[strokes], x, y)
    there = layer[:, 0, None, None] > np.float32(0.35)
    cover: Planes = (there * (0.5 - distance / pixel).clip(0, 1)).astype(np.float32)
    return cover


def _ellipse(u: Planes, v: Planes, size: Points) -> Planes:
    distance: Planes = np.hypot(u, v) - size
    return distance


def _rectangle(u: Planes, v: Planes, size: Points) -> Planes:
    distance: Planes = np.maximum(np.abs(u), np.abs(v)) - size
    return distance


def _ring(u: Planes, v: Planes, size: Points) -> Planes:
    distance: Planes = np.abs(np.hypot(u, v) - size) - 0.2 * size
    return distance


def _stroke(layer: Points, x: Planes, y: Planes) -> Planes:
    """Return the distance from a cubic Bézier curve, less half its thickness."""
    bends = 1.8 * (layer[:, 7 + _COLOURS :].reshape(len(layer), _BENDS, 2) - 0.5)
    time = np.linspace(0, 1, _SEGMENTS + 1, dtype=np.float32)
    weights = np.stack([(1 - time) ** 3, 3 * time * (1 - time) ** 2, 3 * time**2 * (1 - time), time**3], axis=1)
    curve = np.einsum("tb,nbc->ntc", weights, bends)[..., None, None]
    nearest = np.full((len(layer), *x.shape[1:]), np.inf, dtype=np.float32)
    for start, end in zip(curve.transpose(1, 2, 0, 3, 4)[:-1], curve.transpose(1, 2, 0, 3, 4)[1:], strict=True):
        ahead, length = end - start, ((end - start) ** 2).sum(axis=0) + np.float32(1e-9)
        share = (((x - start[0]) * ahead[0] + (y - start[1]) * ahead[1]) / length).clip(0, 1)
        nearest = np.minimum(nearest, np.hypot(x - start[0] - share * ahead[0], y - start[1] - share * ahead[1]))
    thickness: Planes = nearest - (0.03 + 0.12 * layer[:, 4, None, None])
    return thickness
