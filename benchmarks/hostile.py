"""What happens to hostile uploads: every file of the tests' corpus through the confined process.

    python -m benchmarks.hostile make FOLDER
    python -m benchmarks.hostile measure FOLDER [--markdown benchmarks/results/hostile-files.md]

Two steps, because a process's peak of memory counts from that of the process that started it. Prints JSON: by file,
whether it was refused, with which sentence, the processor seconds it took (starting Python included), and the most
memory that its process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from datalens_service.data.intake.sandbox.sandbox import Confinement, Refused, decode

CANARY = "datalens-canary"
ROOT = Path(__file__).parents[1]
GOAL = 256
WHY = """Python with NumPy, pydantic and Pillow takes about 60 MiB, pyarrow (for Parquet only) about 50 more. The size
that a Parquet file declares is checked before a page is read. But a footer may lie, and pyarrow unpacks a page as a
whole: its 96 MiB, the rows made from it, and up to 64 MiB of images already counted are in memory before the reader
notices. A page may hold 2 GiB, so such a file can take more than here: the address space of the process
(`DATALENS_DECODE_MEMORY_BYTES`, 8 GiB) is the limit. Lower it if uploads are small or memory is short."""
LIMITS = Confinement(memory_bytes=2**30, seconds=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "measure"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder)
        return
    names = json.loads((given.folder / "names.json").read_text())
    result = {**provenance(), "files": measured_each({each: given.folder / str(at) for at, each in enumerate(names)})}
    print_result(result)
    if given.markdown:
        given.markdown.write_text(page(result))


def make(folder: Path) -> None:
    """The corpus as files that are numbered."""
    sys.path.insert(0, str(ROOT))
    from tests.data.hostile import CORPUS

    folder.mkdir(exist_ok=True)
    for number, hostile in enumerate(CORPUS.values()):
        (folder / str(number)).write_bytes(hostile.make())
    (folder / "names.json").write_text(json.dumps(list(CORPUS)))


def measured_each(paths: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """What became of each file; a fresh process starts each reader, so that its peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        return dict(zip(paths, fresh.map(measured, paths.values()), strict=True))


def measured(path: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        before = processor_seconds()
        try:
            decode(path, Path(name), LIMITS)
            says = None
        except Refused as error:
            says = error.detail
        seconds = round(processor_seconds() - before, 2)
        ran = any(entry.name == CANARY for entry in Path(name).rglob("*"))
    return {
        "bytes": path.stat().st_size,
        "refused": says is not None,
        "ran_code": ran,
        "says": says,
        "seconds": seconds,
        "mebibytes": peak(),
    }


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak() -> int:
    """Of the largest process so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def page(result: dict[str, Any]) -> str:
    files = result["files"]
    refused = sum(file["refused"] and not file["ran_code"] for file in files.values())
    slowest = max(file["seconds"] for file in files.values())
    large = [name for name, file in files.items() if file["mebibytes"] >= GOAL]
    others = max(file["mebibytes"] for name, file in files.items() if name not in large)
    lines = [
        "# Hostile files",
        "",
        "How the sandboxed reader handles files that are made to harm the service. The corpus is",
        "[`tests/data/hostile.py`](../../tests/data/hostile.py); this page is written by",
        "`python -m benchmarks.hostile measure FOLDER --markdown benchmarks/results/hostile-files.md`.",
        "",
        f"{refused} of {len(files)} were refused and ran nothing; the slowest took {slowest} processor seconds",
        f"(starting Python included). {len(files) - len(large)} took at most {others} MiB of memory, where the goal is",
        f"less than {GOAL}; above it: {', '.join(large) or 'none'}.",
        f"Commit {result['commit']}.",
        "",
        WHY,
        "",
        "| file | bytes | seconds | MiB | [refusal](#refusals) |",
        "| --- | --- | --- | --- | --- |",
    ]
    numbers: dict[str, int] = {}
    for name, file in files.items():
        says = (file["says"] or "READ").partition(". ")[0].removesuffix(".")
        number = numbers.setdefault(says, len(numbers) + 1)
        lines.append(f"| {name} | {file['bytes']:,} | {file['seconds']} | {file['mebibytes']} | {number} |")
    return "\n".join([*lines, "", "## Refusals", "", *_wrapped(numbers), ""])


def _wrapped(sentences: Iterable[str]) -> Iterator[str]:
    for number, sentence in enumerate(sentences, 1):
        yield from textwrap.wrap(f"{number}. {sentence}", 120, subsequent_indent="   ")


if __name__ == "__main__":
    main()
