"""What papers and re-runs print of DataLens and its rivals.

Only figures that a stored copy or a quotation of it confirms; each is its authors', by their accounting and protocol.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HEAD: Final = (
    "method",
    "measured by",
    "MNIST, ε = 1",
    "MNIST, ε = 10",
    "Fashion-MNIST, ε = 1",
    "Fashion-MNIST, ε = 10",
)
SOK: Final = "re-run, [SoK](rivals.md#sources)"
BENCH: Final = "re-run, [DPImageBench](rivals.md#sources)"
QUOTED: Final = "its paper, quoted by DPDM and DP-Sinkhorn"

Cells = tuple[str, str, str, str]
_NONE: Final = ("", "", "", "")


class Published(NamedTuple):
    """One source's figures of one method, in the order of `HEAD`; empty where it has none."""

    rival: str
    source: str
    accuracies: Cells
    fids: Cells = _NONE


FIGURES: Final = (
    Published("DataLens", QUOTED, ("", "80.7", "", "70.6")),
    Published("DataLens", SOK, ("", "53.9", "", "")),
    Published("G-PATE", QUOTED, ("", "80.9", "", "69.3"), ("", "150.6", "", "171.9")),
    Published("G-PATE", "re-run, GS-WGAN's authors", ("", "51", "", "50")),
    Published("G-PATE", SOK, ("", "42.0", "", "")),
    Published("GS-WGAN", "its paper", ("", "80", "", "65"), ("", "61.3", "", "131.3")),
    Published("GS-WGAN", SOK, ("13.2", "78.3", "12.5", "64.7")),
    Published("GS-WGAN", BENCH, ("72.4", "75.3", "52.7", "56.7"), ("", "47.7", "", "97.2")),
    Published("PATE-GAN", SOK, ("", "cannot learn", "", "")),
    Published("DP-GAN", "Bie et al.", ("", "95.0", "", ""), ("", "13.0", "", "")),
    Published("DP-GAN", SOK, ("58.6", "74.7", "54.1", "59.5")),
    Published("DP-GAN", BENCH, ("92.4", "92.7", "71.8", "70.3"), ("", "30.3", "", "76.9")),
)


def lines() -> list[list[str]]:
    """Lines of the table, accuracy and FID of each source."""
    return [[each.rival, each.source, *map(_figures, each.accuracies, each.fids)] for each in FIGURES]


def _figures(accuracy: str, fid: str) -> str:
    return f"{accuracy or '–'}/{fid}" if fid else accuracy
