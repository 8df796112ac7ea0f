"""Image sets that are drawn by code, with fixed seeds: kinds that public sets of this size do not have.

Each has what makes classes differ, and what moves from image to image and makes them hard. A set is a function of a
class and a generator of random numbers that returns one image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from datalens_service.data.dataset import Split, Upload
from datalens_service.data.intake.assembly import build_upload

Floats = NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], Floats]
"""From a label to an image (height, width, channels) with numbers from 0 to 1; what lies outside is cut off."""

_TEST_IMAGES: Final = 1_000
_GLYPHS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class MadeSet:
    """A set that code draws.

    Attributes:
        shares: Frequencies of the classes.
        records: Number of training images.
    """

    draw: Draw
    shares: Sequence[float]
    records: int

    def build(self) -> Upload:
        """Draw all images, the same on every call."""
        rng = np.random.default_rng(0)
        train, test = (self._split(count, rng) for count in (self.records, _TEST_IMAGES))
        return build_upload(train, test, tuple(str(label) for label in range(len(self.shares))))

    def _split(self, count: int, rng: np.random.Generator) -> Split:
        counts = np.rint(np.cumsum([0.0, *self.shares]) / sum(self.shares) * count).astype(int)
        labels = rng.permutation(np.repeat(np.arange(len(self.shares)), np.diff(counts))).astype(np.int64)
        images = np.stack([np.clip(self.draw(int(label), rng), 0, 1) for label in labels])
        return Split(np.rint(255 * images).astype(np.uint8), labels)


def _grid(height: int, width: int) -> tuple[Floats, Floats]:
    """Rows and columns of pixels, from -1 to 1."""
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    return rows, columns


def _smooth(rng: np.random.Generator, side: int, coarse: int) -> Floats:
    """A random surface (side, side) with about unit variance."""
    small = Image.fromarray(rng.standard_normal((coarse, coarse)).astype(np.float32))
    return 1.5 * np.asarray(small.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64)


def _coloured(mask: Floats, front: Floats, back: Floats) -> Floats:
    return mask[..., None] * front + (1 - mask[..., None]) * back


def _polygon(side: int, points: Floats) -> Floats:
    """A filled polygon with points in [-1, 1], four times as fine and averaged."""
    fine = Image.new("L", (4 * side, 4 * side))
    ImageDraw.Draw(fine).polygon([tuple(point) for point in (points + 1) * 2 * side], fill=255)
    return np.asarray(fine.resize((side, side), Image.Resampling.BOX), dtype=np.float64) / 255


def _star(corners: int, inner: float, turn: float) -> Floats:
    angles = turn + np.arange(2 * corners) * math.pi / corners
    lengths = np.where(np.arange(2 * corners) % 2, inner, 1.0)
    return np.stack([lengths * np.cos(angles), lengths * np.sin(angles)], axis=1)


def _draw_shape(label: int, rng: np.random.Generator) -> Floats:
    """A polygon of random colour, place and size on a random ground."""
    corners, inner = ((3, 0.5), (4, 0.71), (30, 1.0), (5, 0.4), (4, 0.25), (2, 0.35))[label]
    points = _star(corners, inner, rng.uniform(-0.4, 0.4)) * rng.uniform(0.4, 0.75) + rng.uniform(-0.25, 0.25, 2)
    image = _coloured(_polygon(32, points), rng.uniform(0, 1, 3), rng.uniform(0, 1, 3))
    return image + 0.05 * rng.standard_normal(image.shape)


def _draw_texture(label: int, rng: np.random.Generator) -> Floats:
    """Noise in a band of frequencies and directions: the average image of every class is grey."""
    rows, columns = (np.fft.fftfreq(28)[:, None], np.fft.fftfreq(28)[None])
    length, angle = np.hypot(rows, columns), np.arctan2(rows, columns)
    band, direction = ((0.08, None), (0.2, None), (0.15, 0.0), (0.15, math.pi / 2), (0.15, math.pi / 4))[label]
    filtered = np.exp(-(((length - band * rng.uniform(0.8, 1.2)) / 0.04) ** 2))
    if direction is not None:
        filtered = filtered * np.exp(4 * (np.cos(2 * (angle - direction - rng.uniform(-0.2, 0.2))) - 1))
    found = np.fft.ifft2(np.fft.fft2(rng.standard_normal((28, 28))) * filtered).real
    return (0.5 + rng.uniform(0.1, 0.25) * found / found.std())[..., None]


def _draw_glyph(label: int, rng: np.random.Generator) -> Floats:
    """A digit or letter, turned, moved and scaled."""
    page = Image.new("L", (56, 56))
    font = ImageFont.load_default(int(rng.integers(34, 46)))
    ImageDraw.Draw(page).text((28, 28), _GLYPHS[label], font=font, fill=255, anchor="mm")
    page = page.rotate(rng.uniform(-20, 20), translate=tuple(rng.integers(-6, 7, 2).tolist()))
    found = np.asarray(page.resize((28, 28), Image.Resampling.BOX), dtype=np.float64) / 255
    return (found * rng.uniform(0.6, 1.0) + 0.08 * rng.standard_normal(found.shape))[..., None]


def _draw_dots(label: int, rng: np.random.Generator) -> Floats:
    """One to four spots anywhere: what is counted has no place."""
    rows, columns = _grid(28, 28)
    image = np.zeros((28, 28))
    for row, column in rng.uniform(-0.8, 0.8, (label + 1, 2)):
        spot = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / rng.uniform(0.01, 0.05))
        image += rng.uniform(0.3, 0.9) * spot
    return (rng.uniform(0.0, 0.2) + image + 0.05 * rng.standard_normal(image.shape))[..., None]


def _draw_lesion(label: int, rng: np.random.Generator) -> Floats:
    """A cloudy disc; the rarer class has a faint spot somewhere in it, the other one at times a smaller one."""
    rows, columns = _grid(64, 64)
    disc = 1 / (1 + np.exp(20 * (np.hypot(rows, columns * rng.uniform(0.9, 1.2)) - rng.uniform(0.75, 0.9))))
    row, column = rng.uniform(-0.4, 0.4, 2)
    strength = rng.uniform(0.08, 0.35) if label else rng.choice([0.0, 0.06])
    spot = strength * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / rng.uniform(0.02, 0.08))
    image = disc * (rng.uniform(0.35, 0.6) + 0.07 * _smooth(rng, 64, 8) + spot)
    return (image + 0.03 * rng.standard_normal(image.shape))[..., None]


def _draw_scan(label: int, rng: np.random.Generator) -> Floats:
    """Two dark fields between ribs; haze lies over none of them, one, or both."""
    rows, columns = _grid(96, 96)
    rows, columns = rows * rng.uniform(0.9, 1.15) + rng.uniform(-0.1, 0.1), columns + rng.uniform(-0.1, 0.1)
    fields = [np.exp(-(((columns - side) / 0.3) ** 4) - (rows / 0.7) ** 4) for side in (-0.45, 0.45)]
    ribs = 0.06 * np.cos(18 * (rows + 0.3 * columns**2) + rng.uniform(0, 6)) * sum(fields)
    hazy = ((), (int(rng.integers(2)),), (0, 1))[label]
    light = [rng.uniform(0.1, 0.5) if side in hazy else rng.uniform(0.0, 0.15) for side in (0, 1)]
    clouds = 1 + 0.4 * _smooth(rng, 96, 6)
    dark = sum(field * (0.5 - haze * clouds) for field, haze in zip(fields, light, strict=True))
    image = rng.uniform(0.65, 0.8) + ribs - dark
    return (image + 0.04 * rng.standard_normal(image.shape))[..., None]


def _draw_cell(label: int, rng: np.random.Generator) -> Floats:
    """A stained cell with a nucleus, which is larger and darker in the rarer class."""
    rows, columns = _grid(48, 48)
    place = np.hypot((rows - rng.uniform(-0.15, 0.15)) * rng.uniform(0.85, 1.2), columns - rng.uniform(-0.15, 0.15))
    size = rng.uniform(0.55, 0.85)
    cell = 1 / (1 + np.exp(25 * (place + 0.06 * _smooth(rng, 48, 5) - size)))
    inner = size * (rng.uniform(0.45, 0.75) if label else rng.uniform(0.25, 0.5))
    nucleus = 1 / (1 + np.exp(25 * (place + 0.05 * _smooth(rng, 48, 6) - inner)))
    ground = np.array([0.9, 0.85, 0.9]) + rng.uniform(-0.06, 0.06, 3)
    image = _coloured(cell, np.array([0.85, 0.6, 0.75]) + rng.uniform(-0.12, 0.12, 3), ground)
    image = _coloured(nucleus, np.array([0.45, 0.3, 0.6]) + rng.uniform(-0.12, 0.12, 3) - 0.08 * label, image)
    return image + 0.03 * rng.standard_normal(image.shape)


def _draw_product(label: int, rng: np.random.Generator) -> Floats:
    """A silhouette of one of ten kinds, each of many proportions and colours, with a mark on it, on white."""
    shape = np.random.default_rng(100 + label)
    outline = shape.uniform(0.15, 0.8, 7)
    outline = np.clip(outline * rng.uniform(0.7, 1.3, 7) * rng.uniform(0.6, 1.1), 0.08, 0.9)
    heights = np.linspace(-0.8, 0.8, 7) * rng.uniform(0.6, 1.1)
    points = np.concatenate([np.stack([outline, heights], 1), np.stack([-outline, heights], 1)[::-1]])
    points = points[:, ::-1] if rng.random() < 0.3 else points
    mask = _polygon(64, points + rng.uniform(-0.1, 0.1, 2))
    shade = 1 + 0.2 * _smooth(rng, 64, 4)[..., None]
    image = _coloured(mask, rng.uniform(0, 0.9, 3) * shade, np.ones(3))
    label_place = _polygon(64, _star(4, 0.71, rng.uniform(0, 6)) * rng.uniform(0.05, 0.2) + rng.uniform(-0.2, 0.2, 2))
    return _coloured(label_place * mask, rng.uniform(0, 1, 3), image)


def _draw_scene(label: int, rng: np.random.Generator) -> Floats:
    """Sky over ground with things before them: palettes overlap, and things are of any kind."""
    palettes = np.random.default_rng(7).uniform(0.2, 0.8, (8, 3, 3))[label]
    sky, ground, thing = np.clip(palettes + 0.22 * rng.standard_normal((3, 3)), 0, 1)
    rows, _ = _grid(32, 32)
    horizon = rng.uniform(-0.4, 0.5)
    image = _coloured(1 / (1 + np.exp(15 * (rows - horizon + 0.1 * _smooth(rng, 32, 5)))), sky, ground)
    for _ in range(1 + label % 3):
        points = _star(3 + label % 4, rng.uniform(0.5, 0.9), rng.uniform(0, 6)) * rng.uniform(0.15, 0.5)
        image = _coloured(_polygon(32, points + rng.uniform(-0.7, 0.7, 2)), thing, image)
    return image + 0.1 * _smooth(rng, 32, 12)[..., None] + 0.03 * rng.standard_normal(image.shape)


def _draw_bar(label: int, rng: np.random.Generator) -> Floats:
    """A bar in one of three directions."""
    rows, columns = _grid(16, 16)
    angle = (0.0, math.pi / 2, math.pi / 4)[label] + rng.uniform(-0.3, 0.3)
    across = rows * math.cos(angle) + columns * math.sin(angle) - rng.uniform(-0.4, 0.4)
    image = rng.uniform(0.4, 0.9) * np.exp(-((across / rng.uniform(0.12, 0.25)) ** 2))
    return (image + 0.15 * rng.standard_normal(image.shape))[..., None]


MADE: Final = {
    "shapes": MadeSet(_draw_shape, [1] * 6, 3_000),
    "textures": MadeSet(_draw_texture, [1] * 5, 2_000),
    "glyphs": MadeSet(_draw_glyph, [1] * 36, 5_000),
    "dots": MadeSet(_draw_dots, [70, 15, 10, 5], 3_000),
    "lesions": MadeSet(_draw_lesion, [70, 30], 2_000),
    "scans": MadeSet(_draw_scan, [45, 35, 20], 900),
    "cells": MadeSet(_draw_cell, [85, 15], 2_900),
    "products": MadeSet(_draw_product, [16, 15, 14, 12, 11, 9, 8, 6, 5, 4], 3_000),
    "scenes": MadeSet(_draw_scene, [1] * 8, 4_000),
    "bars": MadeSet(_draw_bar, [1] * 3, 300),
}
