"""Write the tables of README.md, docs/utility.md, docs/panel.md, docs/report.md and benchmarks/results/measurements.md:
`python -m benchmarks.table`.

With `--check` nothing is written, and the exit code says whether all are what the results say.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import panel_page, published
from benchmarks.kept_results import RESULTS, markdown_table, read_results, read_rows
from benchmarks.pooling import cell, pool, protocol

ROOT = Path(__file__).parent.parent
NOTES: Final = ROOT / "benchmarks" / "utility.md"
PAGE: Final = ROOT / "docs" / "utility.md"
MEASUREMENTS: Final = RESULTS / "measurements.md"
SAMPLES: Final = ROOT / "docs" / "images" / "samples"
BEGIN, END = "<!-- table: python -m benchmarks.table -->\n", "<!-- end of table -->"

DATASETS: Final = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
BUDGETS: Final = (0.2, 1.0, 10.0)
FIDELITY: Final = {
    "fid": "FID",
    "kid": "KID",
    "precision": "precision",
    "recall": "recall",
    "inception_score": "Inception score",
    "random_fid": "FID, random",
}
COLUMNS: Final = [
    "data set", "method", "ε", "accuracy", *FIDELITY.values(), "seeds", "images × epochs", "seconds", "commit",
    "fidelity of",
]  # fmt: skip
ORDER: Final = (
    "auto",
    "rejection",
    "diffusion",
    "guided",
    "shapes",
    "mixture",
    "moments",
    "warm",
    "scratch",
    "klevel",
    "count_sketch",
    "g_pate",
    "gs_wgan",
    "pate_gan",
    "pate_gan_scratch",
    "dp_gan",
    "dp_gan_scratch",
    "floor",
    "ceiling",
)
"""Rows from top to bottom, whatever they measure."""

_WHOLE: Final = 100
"""FIDs from here on are shown without decimals."""

SHORT: Final = ("auto", "floor", "ceiling")
"""Rows of the table in README.md."""
UNSHOWN: Final = (
    "rejection", "diffusion", "mixture", "klevel", "count_sketch", "pate_gan_scratch", "dp_gan_scratch",
)  # fmt: skip
PICTURED: Final = ("auto", "guided", "moments", "scratch")
TITLES: Final = {
    "floor A: noisy class averages": "baseline: ten noisy class averages",
    "floor B: `moments`": "`moments`, one Gaussian per class (baseline)",
    "ceiling: real images": "real images, the same classifier",
}
"""Names of measurements as pages show them, where they differ from the results."""

MEASURED: Final = """# Every measurement of utility

`python -m benchmarks.utility --row ROW --dataset DATASET --epsilon ε` prints one, with `--images` as its line says;
rows are in [`benchmarks/rows.py`](../rows.py). Images × epochs, with a ¹ at the accuracy, are synthetic images and the
passes of the standard CNN of versions up to 1.0.0 over them. More of either helps every method, so compare rows with
equal numbers; real images were 60,000 × 4, fewer than any row of `teach`. Rows without epochs are by the
[standard CNN](../../docs/report.md#accuracy) of today, in 1,000 steps. Seconds are processor time for training, one
thread beside other work; those of 38eb7aa and earlier, and of 373aaaf, are wall-clock time.

Fidelity is of the same samples, those of seed 0, against the real test images. *Fidelity of* names the commit of
another run of the row where it is not: one seed, with its own accuracy, in `fidelity.jsonl`. Features are the 128 of a
[small CNN](../../docs/findings.md). Rows that name an extractor in their JSON have it from
`extractor-*.safetensors`; older ones trained it anew by the same recipe. Class averages are those without noise, and
real images are the training images. *FID, random* is that under the random convolutions of
[reports](../../docs/report.md#fidelity), of 2,000 images, and has another scale.

`python -m benchmarks.table` writes this page.
"""

Rows = list[dict[str, Any]]


def rows() -> Rows:
    """All rows of all results, each with its commit."""
    again = {cell(row): row for row in read_rows("fidelity")}
    alike: dict[tuple[Any, ...], Rows] = {}
    for row in read_rows("utility"):
        alike.setdefault(protocol(row), []).append(row)
    measured = [pool(first, others) for first, *others in alike.values()]
    results = [take_fidelity(row, again.get(cell(row))) for row in measured]
    return sorted(
        results, key=lambda row: (list(DATASETS).index(row["dataset"]), row["epsilon"] or math.inf, rank(row))
    )


def take_fidelity(row: dict[str, Any], again: dict[str, Any] | None) -> dict[str, Any]:
    """A row as it is, or with figures of another run if it has none by the fixed extractor."""
    if again is None or "extractor" in row:
        return row
    return row | {name: again[name] for name in FIDELITY if name in again} | {"fidelity_of": again["commit"]}


def rank(row: dict[str, Any]) -> int:
    """Place of a row."""
    return ORDER.index(row["row"])


def accuracy(row: dict[str, Any]) -> str:
    """Mean and spread."""
    spread = f"±{row['accuracy_std']:.1f}" if row["accuracy_std"] is not None else ""
    return f"{row['accuracy_mean']:.1f}{spread}{panel_page.mark(row)}"


def both_figures(row: dict[str, Any]) -> str:
    """Accuracy, and FID if it was measured."""
    return f"{accuracy(row)} / {row['fid']:.{0 if row['fid'] >= _WHOLE else 1}f}" if "fid" in row else accuracy(row)


def overview(results: Rows, show: Callable[[dict[str, Any]], str]) -> str:
    """One line per method, one column per data set and budget; `show` writes the figures of a row."""
    places = [(dataset, epsilon) for dataset in DATASETS for epsilon in BUDGETS]
    cells = {(row["method"], row["dataset"], row["epsilon"]): show(row) for row in results}
    # Real images have no budget: their figures stand in every column.
    cells |= {
        (row["method"], row["dataset"], epsilon): show(row)
        for row in results
        if row["epsilon"] is None
        for epsilon in BUDGETS
    }
    methods = list(dict.fromkeys(row["method"] for row in sorted(results, key=rank)))
    head = ["trained on", *(f"{DATASETS[dataset]}, ε = {epsilon:g}" for dataset, epsilon in places)]
    return markdown_table(
        head, [[TITLES.get(name, name), *(cells.get((name, *place), "") for place in places)] for name in methods]
    )


def details(results: Rows) -> str:
    """One line per measurement."""
    return markdown_table(COLUMNS, [line(row) for row in results])


def line(row: dict[str, Any]) -> list[str]:
    """One measurement."""
    # Real images are no synthetic ones; class averages have no images at all.
    passes = f" × {row['epochs']}" if "epochs" in row else ""
    shown = f"{row['synthetic_images']:,}{passes}" if row["row"] not in ("floor", "ceiling") else ""
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
    method = " ".join([TITLES.get(row["method"], row["method"]), *row["settings"]])
    return [
        DATASETS[row["dataset"]], method, budget(row), accuracy(row), *(str(row.get(name, "")) for name in FIDELITY),
        str(row["seeds"]), shown, seconds, row["commit"], row.get("fidelity_of", ""),
    ]  # fmt: skip


def samples() -> str:
    """Pictures by method and budget, those that are there."""
    written = ""
    for dataset, name in DATASETS.items():
        lines = []
        for row in PICTURED:
            pictures = [SAMPLES / f"{dataset}-{row}-{epsilon:g}.png" for epsilon in BUDGETS]
            if any(path.exists() for path in pictures):
                shown = [
                    f"![{path.stem}]({path.relative_to(PAGE.parent)})" if path.exists() else "" for path in pictures
                ]
                lines.append([f"`{row}`", *shown])
        if lines:
            written += (
                f"### {name}\n\n" + markdown_table(["row", *(f"ε = {epsilon:g}" for epsilon in BUDGETS)], lines) + "\n"
            )
    return written


def budget(row: dict[str, Any]) -> str:
    """ε, if there is one."""
    return f"{row['epsilon']:g}" if row["epsilon"] else ""


def with_table(path: Path, table: str) -> str:
    """A page that people write, with its one table."""
    before, rest = path.read_text().split(BEGIN)
    return before + BEGIN + table + END + rest.split(END)[1]


def judges() -> str:
    """The standard CNN on real images beside one that was trained for longer: means over the seeds of a set."""
    found: dict[tuple[str, int], Rows] = {}
    for row in read_results("judge"):
        found.setdefault((row["dataset"], row["records"]), []).append(row)
    names = ("balanced", "reference_balanced", "share", "processor_seconds", "reference_processor_seconds")
    lines = []
    for (name, records), of_one in found.items():
        known = [[row[column] for row in of_one if column in row] for column in names]
        figures = (f"{statistics.mean(values):.1f}" if values else "" for values in known)
        lines.append([f"{panel_page.TITLES[name]}, {records:,}", *figures, str(len(of_one))])
    return markdown_table(["real images", "judge", "trained longer", "share", "s", "s, longer", "seeds"], lines)


def page(results: Rows) -> str:
    """docs/utility.md. Rivals without a warm start, and what `auto` takes, are among the measurements only."""
    shown = [row for row in results if row["row"] not in UNSHOWN]
    notes = NOTES.read_text().replace("{overview}\n", overview(shown, both_figures))
    notes = notes.replace("{samples}\n", samples())
    notes = notes.replace("{rivals}\n", markdown_table(list(published.HEAD), published.lines()))
    return "<!-- python -m benchmarks.table writes this from benchmarks/utility.md -->\n" + notes


def measurements(results: Rows) -> str:
    """benchmarks/results/measurements.md."""
    return MEASURED + "\n" + details(results)


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = rows()
    short, report = [row for row in results if row["row"] in SHORT], ROOT / "docs" / "report.md"
    outputs = {
        ROOT / "README.md": with_table(ROOT / "README.md", overview(short, accuracy)),
        PAGE: page(results),
        panel_page.PAGE: panel_page.write(),
        report: with_table(report, judges()),
        MEASUREMENTS: measurements(results),
    }
    if options.check:
        sys.exit(any(not path.exists() or path.read_text() != content for path, content in outputs.items()))
    for path, content in outputs.items():
        path.write_text(content)


if __name__ == "__main__":
    main()
