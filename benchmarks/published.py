"""What papers and re-runs print of the rivals, and the tables that show it beside our rows.

Only figures that a stored copy or a quotation of it confirms; each is its authors', by their accounting and protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

Rows = list[dict[str, Any]]
Place = tuple[str, float]

PLACES: Final[tuple[Place, ...]] = (("mnist", 1.0), ("mnist", 10.0), ("fashion_mnist", 1.0), ("fashion_mnist", 10.0))
HEAD: Final = (
    "method",
    "measured by",
    "MNIST, ε = 1",
    "MNIST, ε = 10",
    "Fashion-MNIST, ε = 1",
    "Fashion-MNIST, ε = 10",
)
OURS: Final = "**this repository**"
SOK: Final = "re-run, [SoK](rivals.md#sources)"
BENCH: Final = "re-run, [DPImageBench](rivals.md#sources)"
TABLE_12: Final = "[DataLens, table 12](rivals.md#sources)"

Cells = tuple[str, str, str, str]


class Published(NamedTuple):
    """One source's figures of one method, in the order of `PLACES`; empty where it has none."""

    rival: str
    source: str
    cells: Cells


ACCURACY: Final = (
    Published("g_pate", "its paper, quoted by DPDM and DP-Sinkhorn", ("", "80.9", "", "69.3")),
    Published("g_pate", "re-run, GS-WGAN's authors", ("", "51", "", "50")),
    Published("g_pate", SOK, ("", "42.0", "", "")),
    Published("gs_wgan", "its paper", ("", "80", "", "65")),
    Published("gs_wgan", SOK, ("13.2", "78.3", "12.5", "64.7")),
    Published("gs_wgan", BENCH, ("72.4", "75.3", "52.7", "56.7")),
    Published("pate_gan", SOK, ("", "cannot learn", "", "")),
    Published("dp_gan", "Bie et al.", ("", "95.0", "", "")),
    Published("dp_gan", SOK, ("58.6", "74.7", "54.1", "59.5")),
    Published("dp_gan", BENCH, ("92.4", "92.7", "71.8", "70.3")),
)
FIDS: Final = (
    Published("g_pate", "its paper, quoted by DPDM and DP-Sinkhorn", ("", "150.6", "", "171.9")),
    Published("g_pate", TABLE_12, ("153.4", "", "214.8", "")),
    Published("gs_wgan", "its paper", ("", "61.3", "", "131.3")),
    Published("gs_wgan", TABLE_12, ("489.8 †", "58.8", "587.3 †", "135.5")),
    Published("gs_wgan", BENCH, ("", "47.7", "", "97.2")),
    Published("pate_gan", TABLE_12, ("231.5", "", "253.2", "")),
    Published("dp_gan", "Bie et al.", ("", "13.0", "", "")),
    Published("dp_gan", TABLE_12, ("470.2 †", "", "472.0 †", "")),
    Published("dp_gan", BENCH, ("", "30.3", "", "76.9")),
)
NAMES: Final = {"g_pate": "G-PATE", "gs_wgan": "GS-WGAN", "pate_gan": "PATE-GAN", "dp_gan": "DP-GAN"}
FOLLOWERS: Final = {"pate_gan_scratch": "pate_gan", "dp_gan_scratch": "dp_gan"}
"""Rows of a rival beside the row of its name."""


def accuracies(results: Rows) -> list[list[str]]:
    """Lines of the table of accuracy: of each rival our rows, then what others print."""
    floors = {(row["dataset"], row["epsilon"]): row["accuracy_mean"] for row in results if row["row"] == "floor"}

    def show(row: dict[str, Any]) -> str:
        below = row["accuracy_mean"] < floors[row["dataset"], row["epsilon"]]
        return f"{_accuracy(row)}{' ↓' if below else ''}"

    return _lines(results, ACCURACY, show)


def fids(results: Rows) -> list[list[str]]:
    """The same for our FID alone: figures of another extractor do not share its columns."""
    return _lines(results, (), lambda row: str(row.get("fid", "")))


def published_fids() -> list[list[str]]:
    """What others print, with extractors of their own."""
    return [[NAMES[figure.rival], figure.source, *figure.cells] for figure in FIDS]


def _lines(results: Rows, published: tuple[Published, ...], show: Callable[[dict[str, Any]], str]) -> list[list[str]]:
    lines = []
    for rival, name in NAMES.items():
        ours = [row for row in results if FOLLOWERS.get(row["row"], row["row"]) == rival]
        for method in dict.fromkeys(row["method"] for row in ours):
            cells = {(row["dataset"], row["epsilon"]): show(row) for row in ours if row["method"] == method}
            lines.append([method, OURS, *(cells.get(place, "") for place in PLACES)])
        lines += [[name, figure.source, *figure.cells] for figure in published if figure.rival == rival]
    return lines


def _accuracy(row: dict[str, Any]) -> str:
    """Mean, and the spread or that there is only one seed."""
    if row["accuracy_std"] is None:
        return f"{row['accuracy_mean']:.1f} (one seed)"
    return f"{row['accuracy_mean']:.1f} ± {row['accuracy_std']:.1f} ({row['seeds']} seeds)"
