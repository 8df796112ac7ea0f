"""Write the table of docs/mechanisms/von_mises_fisher.md from results: `python -m benchmarks.direction_page`.

With `--check` nothing is written, and the exit code says whether the table is what the results say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.environment import ROOT
from benchmarks.kept_results import read_results

PAGE: Final = ROOT / "docs" / "mechanisms" / "von_mises_fisher.md"
BEGIN, END = "<!-- table: python -m benchmarks.direction_page -->\n", "<!-- end of table -->"
HEAD: Final = (
    "| network | gradient of a record | ε_V | rate | passes | after one | after all | published, 30 passes | by |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)
GRADIENTS: Final = {
    "plain": "as it is",
    "clipped": "cut to length 1",
    "directions": "scaled to length 1",
}
WITHOUT: Final = {"lenet": 87.7, "mlp": 84.7}
NOISY: Final = {
    "lenet": {1: 81.5, 5: 81.3, 10: 81.8, 50: 81.9, 500: 82.9, 300_000: 83.9},
    "mlp": {1: 84.9, 5: 84.2, 10: 84.4, 50: 84.5, 500: 85.1, 300_000: 85.3},
}
"""Table 2 of Faustini et al. 2023, Fashion-MNIST: no privacy, and VMF by ε_V."""


def published(line: dict[str, Any]) -> str:
    """The figure of the paper for such a cell; it names no activation of LeNet."""
    network, epsilon = line["architecture"].removesuffix("_relu"), line["epsilon_v"]
    if epsilon is not None:
        return f"{NOISY[network][epsilon]:.1f}"
    return f"{WITHOUT[network]:.1f}" if line["gradients"] == "plain" else ""


def lines() -> Iterator[dict[str, Any]]:
    """All cells: those of the product's own sampler, and those of many passes."""
    for result in read_results("directions"):
        method = result["method"]
        yield {
            "architecture": method["architecture"],
            "gradients": "directions",
            "epsilon_v": float(f"{2 * result['kappa']:.2g}") if result["noise"] else None,
            "part": None,
            "learning_rate": method["learning_rate"],
            "passes": result["passes"],
            "accuracies_by_pass": [[accuracy] for accuracy in result["accuracies"]],
            "spread": result["spread"],
            "by": "product",
        }
    yield from ({**result, "by": "passes"} for result in read_results("direction_passes"))


def table() -> str:
    """By network, gradient, concentration and passes."""
    ordered = sorted(lines(), key=_place)
    return HEAD + "".join(f"| {' | '.join(_cells(line))} |\n" for line in ordered)


def _place(line: dict[str, Any]) -> tuple[Any, ...]:
    epsilon = line["epsilon_v"]
    kind = list(GRADIENTS).index(line["gradients"])
    return line["architecture"], kind, epsilon is not None, -(epsilon or 0), -line["learning_rate"], line["passes"]


def _cells(line: dict[str, Any]) -> list[str]:
    part = f", turned in parts of {line['part']}" if line["part"] else ""
    epsilon = "no noise" if line["epsilon_v"] is None else f"{line['epsilon_v']:,.0f}"
    first, last = ([run[place] for run in line["accuracies_by_pass"]] for place in (0, -1))
    after_all = f"{sum(last) / len(last):.1f}" + (f" ± {line['spread']:.1f}" if line["spread"] is not None else "")
    return [
        f"`{line['architecture']}`",
        GRADIENTS[line["gradients"]] + part,
        epsilon,
        f"{line['learning_rate']:g}",
        str(line["passes"]),
        f"{sum(first) / len(first):.1f}",
        after_all,
        published(line),
        line["by"],
    ]


def page() -> str:
    """The page with its table."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Table of noisy directions.")
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(page() != PAGE.read_text())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
