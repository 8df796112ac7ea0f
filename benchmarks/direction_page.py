"""Write the tables of docs/mechanisms/von_mises_fisher.md from results: `python -m benchmarks.direction_page`.

With `--check` nothing is written, and the exit code says whether the tables are what the results say.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import defaultdict
from typing import Any, Final

from benchmarks.directions import PUBLISHED
from benchmarks.environment import ROOT
from benchmarks.kept_results import markdown_table, read_results

PAGE: Final = ROOT / "docs" / "mechanisms" / "von_mises_fisher.md"
LEVELS: Final = ("none", *(f"ε_G = {level:g}" for level in (0.8, 1, 2, 3, 8, 50)), *(
    f"ε_V = {level:,}" for level in (1, 5, 10, 50, 500, 300_000)))  # fmt: skip
ACCURACIES: Final = {
    ("fashion_mnist", "lenet"): (87.7, 81.2, 81.7, 82.3, 83.1, 83.9, 85.1, 81.5, 81.3, 81.8, 81.9, 82.9, 83.9),
    ("fashion_mnist", "mlp"): (84.7, 79.6, 79.8, 81.2, 81.7, 82.9, 84.1, 84.9, 84.2, 84.4, 84.5, 85.1, 85.3),
    ("cifar10", "lenet"): (52.2, 36.7, 37.4, 41.5, 43.2, 46.6, 48.9, 50.7, 51.3, 50.5, 51.4, 51.4, 51.6),
    ("cifar10", "mlp"): (45.8, 32.0, 32.7, 34.6, 35.3, 36.9, 39.1, 42.1, 41.9, 42.3, 42.9, 43.3, 44.8),
}
"""Table 2 of Faustini et al. 2023, by level."""
AREAS: Final = {
    ("fashion_mnist", "lenet"): (54.8, 49.2, 49.3, 50.1, 49.9, 50.5, 50.4, 49.5, 48.9, 49.3, 49.8, 50.4, 51.8),
    ("fashion_mnist", "mlp"): (61.1, 49.8, 49.9, 50.4, 51.1, 51.8, 52.6, 49.2, 48.7, 49.2, 49.7, 52.3, 55.1),
    ("cifar10", "lenet"): (78.5, 50.9, 51.1, 51.3, 51.2, 51.6, 51.7, 50.8, 50.5, 50.4, 50.8, 57.1, 66.0),
    ("cifar10", "mlp"): (82.0, 50.5, 50.5, 51.0, 51.4, 52.0, 53.9, 50.3, 50.2, 50.6, 51.9, 58.9, 74.3),
}
"""Table 3."""
ERRORS: Final = {
    ("fashion_mnist", "lenet"): (0.65, 1.60, 1.61, 1.60, 1.62, 1.58, 1.17, 1.80, 1.79, 1.67, 1.66, 1.05, 0.58),
    ("fashion_mnist", "mlp"): (0.37, 1.53, 1.53, 1.54, 1.53, 1.52, 1.45, 1.54, 1.55, 1.52, 1.52, 1.47, 0.91),
    ("cifar10", "lenet"): (0.36, 1.30, 1.28, 1.25, 1.24, 1.24, 0.79, 1.46, 1.48, 1.45, 1.39, 0.77, 0.37),
    ("cifar10", "mlp"): (0.18, 0.89, 0.90, 0.88, 0.88, 0.87, 0.85, 0.91, 0.91, 0.90, 0.89, 0.86, 0.50),
}
"""Table 4."""
ATTACKED: Final = {
    "none": ("no privacy", "none", 0.0),
    "ε_G = 1": ("dp_sgd, ε = 1", "gaussian", 1.0),
    "ε_V = 1": ("von Mises–Fisher, ε_V = 1", "von_mises_fisher", 0.5),
    "ε_V = 50": ("von Mises–Fisher, ε_V = 50", "von_mises_fisher", 25.0),
    "ε_V = 500": ("von Mises–Fisher, ε_V = 500", "von_mises_fisher", 250.0),
    "ε_V = 300,000": ("von Mises–Fisher, ε_V = 300000", "von_mises_fisher", 150_000.0),
}
"""What `benchmarks.audits` attacks: a model, and a gradient with noise of a strength."""
KINDS: Final = {
    ("plain", 0): "as it is",
    ("clipped", 0): "cut to length 1",
    ("directions", 0): "scaled to length 1",
    ("clipped", 10): "cut, parts of 10",
    ("directions", 10): "scaled, parts of 10",
}


def accuracy_table() -> str:
    """Published cells beside ours, by way of bounding gradients."""
    cells: defaultdict[tuple[Any, ...], dict[str, list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
    for line in read_results("directions"):
        place = list(ACCURACIES).index((line["dataset"], line["architecture"].removesuffix("_relu")))
        row = place, line["architecture"], line.get("records") or 0, -line["learning_rate"], LEVELS.index(_level(line))
        cells[row][KINDS[line["gradients"], line["part"] or 0]].append((line["passes"], _accuracy(line)))
    head = ["data", "network", "records", "rate", "noise", "published", *KINDS.values()]
    return markdown_table(head, [_accuracy_cells(row, cells[row]) for row in sorted(cells)])


def _accuracy_cells(row: tuple[Any, ...], found: dict[str, list[tuple[int, str]]]) -> list[str]:
    place, architecture, records, rate, level = row
    data, network = list(ACCURACIES)[place]
    ours = [max(found[kind])[1] if found.get(kind) else "" for kind in KINDS.values()]
    published = f"{ACCURACIES[data, network][level]:.1f}"
    return [
        data,
        f"`{architecture}`",
        f"{records:,}" if records else "all",
        f"{-rate:g}",
        LEVELS[level],
        published,
        *ours,
    ]


def _level(line: dict[str, Any]) -> str:
    if line["epsilon_v"] is not None:
        return f"ε_V = {line['epsilon_v']:,.0f}"
    return "none" if line.get("epsilon_g") is None else f"ε_G = {line['epsilon_g']:g}"


def _accuracy(line: dict[str, Any]) -> str:
    """After all passes; with their number if it is not the paper's."""
    passes = PUBLISHED[line["architecture"].removesuffix("_relu"), line["dataset"]].passes
    spread = f" ± {line['spread']:.1f}" if line["spread"] is not None else ""
    return f"{line['mean']:.1f}{spread}" + (f" ({line['passes']})" if line["passes"] != passes else "")


def attack_table() -> str:
    """Areas under the curve and errors of inverted gradients that were measured; lines without a set: Fashion-MNIST."""
    found = [(line.get("dataset", "fashion_mnist"), row) for line in read_results("audits") for row in line["rows"]]
    areas = {(data, row["model"]): f"{100 * row['auc']['reference']:.1f}" for data, row in found if "auc" in row}
    errors: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
    for data, row in found:
        if "median_error" in row:
            errors[data, row["network"], row["noise"], row["strength"]].append(row["median_error"])
    rows = []
    for data, network in AREAS:
        for level, (model, noise, strength) in ATTACKED.items():
            ways = [(model, noise)]
            if noise == "von_mises_fisher":
                ways.append((model.replace("von Mises–Fisher", "parts of 10"), "parts_of_10"))
            names = [f"{network.replace('lenet', 'lenet_relu')}, {way}" for way, _ in ways]
            found_areas = [areas.get((data, name), "") for name in names]
            found_errors = [_mean_of(errors[data, network, kind, strength]) for _, kind in ways]
            place = LEVELS.index(level)
            published = f"{AREAS[data, network][place]:.1f}", f"{ERRORS[data, network][place]:.2f}"
            cells = [published[0], *_two(found_areas), published[1], *_two(found_errors)]
            if any(found_areas + found_errors):
                rows.append([data, f"`{network}`", level, *cells])
    figures = [f"{figure}, {of}" for figure in ("AUC", "error") for of in ("published", "whole", "parts")]
    return markdown_table(["data", "network", "noise", *figures], rows)


def _two(cells: list[str]) -> list[str]:
    return [*cells, ""][:2]


def _mean_of(values: list[float]) -> str:
    return f"{statistics.mean(values):.2g}" if values else ""


def page() -> str:
    """The page with its tables."""
    text = PAGE.read_text()
    for name, table in (("accuracies", accuracy_table()), ("attacks", attack_table())):
        begin, end = f"<!-- {name}: python -m benchmarks.direction_page -->\n", f"<!-- end of {name} -->"
        text, count = re.subn(f"{begin}.*?{end}", f"{begin}{table}{end}", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} has no place for {name}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of noisy directions.")
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(page() != PAGE.read_text())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
