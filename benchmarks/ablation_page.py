"""Write benchmarks/results/ablations.md and its drawing from benchmarks/results: `python -m benchmarks.ablation_page`.

With `--check` nothing is written, and the exit code says whether page and drawing are what the results say.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final
from xml.etree import ElementTree

from benchmarks.environment import ROOT, SCHEMAS
from benchmarks.kept_results import RESULTS, markdown_table, read_results
from benchmarks.rows import PRESETS
from datalens_service.methods import DataLens
from datalens_service.planning.published import COMMANDS, build_published
from datalens_service.privacy.accounting import limit_units
from datalens_service.report.drawing import Element, canvas, line, mark, polyline, text, xml

PAGE: Final = RESULTS / "ablations.md"
DRAWING: Final = ROOT / "docs" / "images" / "voting.svg"
NOTES: Final = ROOT / "benchmarks" / "ablations.md"
DATASETS: Final = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "signs": "hand signs", "hundred": "two digits"}

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 670, 16, 300
_COLOURS: Final = ("#0a6a66", "#c2571a", "#4b5fa8", "#8a8f94", "#b9a13c", "#9c2f1d")
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#5a636d}.grid{stroke:#8885;stroke-width:1}"
    ".axis{stroke:#888;stroke-width:1.5}polyline{fill:none;stroke-width:2.5}circle{stroke:none}"
    + "".join(
        f".c{number}{{stroke:{colour}}}circle.c{number}{{fill:{colour}}}" for number, colour in enumerate(_COLOURS)
    )
)


def curves() -> list[dict[str, Any]]:
    """All that were measured, best end first."""
    return sorted(read_results("voting"), key=lambda curve: -curve["points"][-1]["accuracy"])


def noise_of(curve: dict[str, Any]) -> str:
    """In words."""
    return "no noise" if curve["epsilon"] is None else f"ε = {curve['epsilon']:g}"


def drawing(results: list[dict[str, Any]]) -> str:
    """Accuracy over images voted on."""
    summary = "; ".join(f"{one['voters']}, {noise_of(one)}: {one['points'][-1]['accuracy']:.1f} %" for one in results)
    svg = canvas("voting", _BOTTOM + 52 + 20 * len(results), "Accuracy over images voted on", summary)
    svg.set("xmlns", "http://www.w3.org/2000/svg")
    ElementTree.SubElement(svg, "style").text = _STYLE
    most = max(one["points"][-1]["images"] for one in results)
    _axes(svg, most)
    for number, one in enumerate(results):
        places = [(_across(point["images"], most), _up(point["accuracy"])) for point in one["points"]]
        polyline(svg, f"c{number}", places)
        mark(svg, *places[-1])
        svg[-1].set("class", f"c{number}")
        _legend(svg, number, one)
    return xml(svg) + "\n"


def _across(images: float, most: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * images / most


def _up(accuracy: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * accuracy / 100


def _axes(svg: Element, most: int) -> None:
    for percent in range(0, 101, 20):
        line(svg, "grid", _LEFT, _up(percent), _RIGHT, _up(percent))
        text(svg, "tick", _LEFT - 8, _up(percent) + 4, f"{percent} %", "end")
    for images in range(0, most + 1, 20_000):
        text(svg, "tick", _across(images, most), _BOTTOM + 18, f"{images:,}", "middle")
    line(svg, "axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 36, "images voted on", "middle")


def _legend(svg: Element, number: int, one: dict[str, Any]) -> None:
    y = _BOTTOM + 58 + 20 * number
    line(svg, f"c{number}", _LEFT, y, _LEFT + 26, y)
    text(svg, "label", _LEFT + 34, y + 4, f"{one['voters']}, {noise_of(one)}, seed {one['seed']}", "start")


def curve_table(results: list[dict[str, Any]]) -> str:
    """The drawing in numbers."""
    rows = []
    for one in results:
        path = ", ".join(f"{point['accuracy']:.1f}" for point in one["points"])
        images = ", ".join(f"{point['images']:,}" for point in one["points"])
        judged = f"{one['synthetic_images']:,} × {one['epochs']}"
        seconds = f"{one['points'][-1]['seconds']:.0f}"
        rows.append([one["voters"], noise_of(one), images, path, judged, seconds, str(one["seed"]), one["commit"]])
    head = ["voters", "noise", "images voted on", "accuracy", "images × epochs", "seconds to train", "seed", "commit"]
    return markdown_table(head, rows)


def cell_table(result: dict[str, Any]) -> str:
    """One row per change."""
    rows = [
        [one["cell"], f"{one['noise_stddev']:,}", f"{one['images']:,}", f"{one['accuracy']:.1f}"]
        for one in result["cells"]
    ]
    return markdown_table(["change", "σ for ε = 1", "images voted on", "accuracy"], rows)


def accounting_table(result: dict[str, Any]) -> str:
    """Images that a budget pays for."""
    rows = [
        [one["setting"], str(one["top_k"]), str(one["noise_stddev"]), f"{one['original']:,}", f"{one['exact']:,}"]
        for one in result["accounting"]
    ]
    return markdown_table(["budget", "k", "σ", "images, the original's conversion", "images, exact"], rows)


def authors_table(results: list[dict[str, Any]]) -> str:
    """One row for each number of steps; runs that differ in their seed alone share it."""
    alike: dict[tuple[str, ...], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for one in sorted(results, key=_place):
        name = f"{DATASETS[one['dataset']]}, ε = {one['published_epsilon']}"
        run = (name, f"{one['teachers']:,}", _changes(one) or "none", _paid_for(one))
        for point in one["points"]:
            alike.setdefault((*run, f"{point['votes']:,}"), []).append((one, point))
    rows = [
        [
            *settings,
            ", ".join(f"{point['last']:.1f}" for _, point in runs),
            ", ".join(f"{point['best']:.1f}" for _, point in runs),
            "; ".join(filter(None, (_other_measures(*run) for run in runs))),
            ", ".join(str(one["seed"]) for one, _ in runs),
            ", ".join(dict.fromkeys(one["commit"] for one, _ in runs)),
        ]
        for settings, runs in alike.items()
    ]
    head = ["settings", "teachers", "changes", "paid for", "steps", "last", "best", "other measures"]
    return markdown_table([*head, "seeds", "commits"], rows)


def _place(one: dict[str, Any]) -> tuple[Any, ...]:
    settings = [*DATASETS].index(one["dataset"]), one["published_epsilon"], one["teachers"]
    return *settings, len(one["like"]), _changes(one), one["seed"]


def _other_measures(one: dict[str, Any], point: dict[str, Any]) -> str:
    by_sgd = "by SGD" if one.get("sgd_epochs", 0) <= 8 else f"{one['sgd_epochs']} epochs by SGD"
    found = {name: point[key] for name, key in (("by batch", "by_batch"), (by_sgd, "sgd")) if point.get(key)}
    parts = [f"{name} {values['last']:.1f} ({values['best']:.1f})" for name, values in found.items()]
    if fidelity := point.get("fidelity"):
        parts.append(f"IS {fidelity['inception_score']}, FID {fidelity['fid']}")
    return ", ".join(parts)


def _paid_for(one: dict[str, Any]) -> str:
    """Steps, by the exact account, with as many teachers as the authors have; for data of another size nothing."""
    schema, epsilon = SCHEMAS.get(one["dataset"]), one["published_epsilon"]
    if schema is None:
        return ""
    asked = build_published(PRESETS[one["dataset"]], schema, epsilon).model_dump() | one.get("changes", {})
    return f"{DataLens.model_validate(asked).plan(schema, limit_units(epsilon, 1e-5)).steps:,}"


def _changes(one: dict[str, Any]) -> str:
    """What is as in the authors' code, and which settings are not."""
    like, every = set(one["like"]), {"batch_norm", "labels", "shards", "shared_adam", "start"}
    short = sorted(like)
    if len(like) > 3:
        short = [" but ".join(["all five", *(every - like)])]
    if one["records"] < one["teachers"] * COMMANDS[PRESETS[one["dataset"]]][0].batch:
        short.append(f"{one['records']:,} records shared")
    return ", ".join([*short, *(f"{name} {json.dumps(value)}" for name, value in one.get("changes", {}).items())])


def page(results: list[dict[str, Any]]) -> str:
    """The notes with every table in its place."""
    written = NOTES.read_text().replace("{curves}\n", curve_table(results))
    result = read_results("ablations")[-1]
    seeds = sorted({one["seed"] for one in result["cells"]})
    judged = (
        f"Commit {result['commit']}, {result['machine']}; {result['synthetic_images']:,} synthetic images, "
        f"{result['epochs']} epochs, seed {', '.join(map(str, seeds))}."
    )
    written = written.replace("{cells}\n", cell_table(result)).replace("{judged}", judged)
    written = written.replace("{accounting}\n", accounting_table(result))
    runs = read_results("authors")
    changed = [one for one in runs if one.get("changes") or one["teachers"] < 40]
    more = [one for one in runs if one["teachers"] > 40]
    written = written.replace("{authors}\n", authors_table([one for one in runs if one not in [*changed, *more]]))
    written = written.replace("{more}\n", authors_table(more)).replace("{changed}\n", authors_table(changed))
    return "<!-- python -m benchmarks.ablation_page writes this from benchmarks/ablations.md -->\n" + written


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = curves()
    outputs = {PAGE: page(results), DRAWING: drawing(results)}
    if options.check:
        sys.exit(any(not path.exists() or path.read_text() != content for path, content in outputs.items()))
    for path, content in outputs.items():
        path.write_text(content)


if __name__ == "__main__":
    main()
