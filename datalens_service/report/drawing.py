"""Pieces of SVG without a library. Elements are built as a tree, which escapes every text.

Colours and fonts come from the page (classes bar, axis, curve, …), so that drawings follow light, dark and
print.
"""

import math
from typing import Final
from xml.etree import ElementTree

WIDTH: Final = 720

Element = ElementTree.Element


def canvas(name: str, height: float, title: str, description: str) -> Element:
    """Make an empty drawing of the page's width; `name` makes its ids unique on the page."""
    box = f"0 0 {WIDTH} {height:g}"
    attributes = {"viewBox": box, "role": "img", "aria-labelledby": f"{name}-title {name}-text", "class": "chart"}
    svg = ElementTree.Element("svg", attributes)
    ElementTree.SubElement(svg, "title", {"id": f"{name}-title"}).text = title
    ElementTree.SubElement(svg, "desc", {"id": f"{name}-text"}).text = description
    return svg


def line(svg: Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    ElementTree.SubElement(svg, "line", {"class": kind, **ends})


def text(svg: Element, kind: str, x: float, y: float, content: str, anchor: str) -> None:
    """Add a line of text that starts, ends or has its middle at x."""
    place = {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(svg, "text", place).text = content


def rectangle(svg: Element, kind: str, x: float, y: float, width: float, height: float) -> None:
    sides = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:.1f}", "height": f"{height:g}"}
    ElementTree.SubElement(svg, "rect", {"class": kind, **sides})


def polyline(svg: Element, kind: str, points: list[tuple[float, float]]) -> None:
    """Add points joined by straight lines."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    ElementTree.SubElement(svg, "polyline", {"class": kind, "points": joined})


def mark(svg: Element, x: float, y: float) -> None:
    """Mark a point with a circle."""
    ElementTree.SubElement(svg, "circle", {"class": "mark", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "5"})


def picture(svg: Element, source: str, x: float, y: float, width: float, height: float) -> None:
    """Add an image from a data URI, its pixels kept sharp."""
    sides = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
    ElementTree.SubElement(svg, "image", {"class": "pixels", "href": source, "preserveAspectRatio": "none", **sides})


def xml(svg: Element) -> str:
    return ElementTree.tostring(svg, encoding="unicode")


def ticks(largest: float) -> list[float]:
    """Return round numbers from 0 to `largest`, four to nine of them."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * factor for factor in (0.1, 0.2, 0.25, 0.5, 1, 2) if largest / (power * factor) <= 8)
    return [round(step * index, 10) for index in range(math.floor(largest / step) + 1)]
