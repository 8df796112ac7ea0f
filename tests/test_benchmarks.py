"""Benchmarks that need servers: their reduced form runs, and says what it should."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from benchmarks import dpimagebench, gpu, panel, panel_page
from benchmarks.fixed_extractor import fixed_extractor
from benchmarks.kept_results import read_rows
from benchmarks.pooling import pool
from benchmarks.rows import ROWS
from benchmarks.service import Answer, Request, _send
from benchmarks.table import BUDGETS, DATASETS, rows, take_fidelity
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.planning import measured
from deployments.fork_servers import start_program
from repository import ROOT
from tests.data.hostile import CORPUS


def report_of(command: str, folder: Path) -> dict[str, Any]:
    """What a benchmark prints, in a process of its own: tests of pages leave an event loop running in this one."""
    printed, stderr = folder / "report.json", 2
    with printed.open("wb") as file:
        assert start_program(command.split(), os.environ, file.fileno(), stderr, ROOT).wait() == 0
    return dict(json.loads(printed.read_text()))


def test_reduced_benchmark_of_the_service(tmp_path: Path) -> None:
    report = report_of("benchmarks.service --clients 3 --requests 2 --seconds 0.02 --images 300", tmp_path)
    for name in ("submit", "status", "list", "plan", "download"):
        assert 0 < report[name]["p50_ms"] <= report[name]["p95_ms"]
        assert report[name]["errors"] == 0


def test_a_grown_service_answers_and_its_journals_add_up(tmp_path: Path) -> None:
    report = report_of("benchmarks.growth --jobs 20 --datasets 10 --requests 2", tmp_path)
    # The real job, and two copies with a reservation, eight charges and a settlement each behind the opening.
    assert (report["rows_of_jobs"], report["verified_entries"]) == (21, 21)


def made_set(name: str) -> Dataset:
    side, channels = {"mnist": (28, 1), "cifar10": (32, 3)}[name]
    pixels = np.random.default_rng(0).integers(256, size=(600, side, side, channels), dtype=np.uint8)
    split = Split(pixels, np.arange(600, dtype=np.int64) % 10)
    schema = Schema(channels=channels, height=side, width=side, class_names=tuple("0123456789"), num_units=600)
    return Dataset(schema, split, split, partition_key=b"k" * 32)


def test_the_script_for_a_gpu_runs_small_and_measures_no_part_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "gpu.jsonl"
    command = f"gpu --out {out} --parts mnist-1 --device cpu --share 0.01 --images 20"
    monkeypatch.setattr(gpu, "dataset", made_set)
    monkeypatch.setattr(sys, "argv", command.split())
    gpu.main()
    gpu.main()
    (digits,) = map(json.loads, out.read_text().splitlines())
    assert (digits["part"], digits["teachers"], digits["votes"]) == ("mnist-1", 40, digits["votes_paid_for"])
    assert 0 <= digits["accuracy"] <= 100
    faces = gpu.take(made_set("cifar10"), gpu.PARTS["faces"], 0.005)
    assert (faces.train.images.shape, faces.schema.num_units) == ((150, 64, 64, 3), 150)
    pairs = gpu.take(made_set("mnist"), gpu.PARTS["hundred"], 0.002)
    assert (pairs.train.images.shape, pairs.schema.num_classes) == ((60, 28, 56, 1), 100)
    assert sorted(set(pairs.train.labels)) == [1, 23, 45, 67, 89]


def test_an_answer_that_is_no_success_counts_as_an_error() -> None:
    async def send() -> list[Answer]:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(503))
        async with httpx2.AsyncClient(transport=transport, base_url="http://service", timeout=60) as client:
            requests = [Request("GET", "/", expected=503), Request("GET", "/")]
            return [answer for request in requests for answer in await _send(client, request, 2)]

    # In a thread of its own, since the tests of pages leave an event loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(asyncio.run, send()).result()
    assert [answer.expected for answer in answers] == [True, True, False, False]


def test_readers_of_hostile_files_stay_small(tmp_path: Path) -> None:
    # A pack and a table; `tests/data/test_sandbox.py` has others under a smaller limit.
    chosen = ["tar.gz bomb", "Parquet: pages that inflate"]
    for number, name in enumerate(chosen):
        (tmp_path / str(number)).write_bytes(CORPUS[name].make())
    (tmp_path / "names.json").write_text(json.dumps(chosen))
    # A process's peak counts from that of the one that started it, and this one is large.
    command = [sys.executable, "-m", "benchmarks.hostile", "measure", str(tmp_path)]
    files = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["files"]
    assert all(files[name]["refused"] for name in chosen)
    assert {name: files[name]["mebibytes"] for name in chosen if files[name]["mebibytes"] >= 256} == {}


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_request_that_the_product_takes(name: str, epsilon: float) -> None:
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    assert ROWS[name].options(epsilon, 1e-5, 0).build_spec(schema).epsilon == epsilon


def test_settings_of_a_trial_replace_those_of_its_row() -> None:
    options = ROWS["klevel"].options(0.2, 1e-5, 0, ("steps=7",))
    assert {"steps=7", "clip=0.05"} <= set(options.settings)
    assert not {"steps=100", "steps=30", "clip=10"} & set(options.settings)


def test_every_rival_has_figures_of_its_own_in_every_cell() -> None:
    rivals = ("g_pate", "gs_wgan", "pate_gan", "dp_gan")
    cells = {(rival, name, epsilon) for rival in rivals for name in DATASETS for epsilon in (1.0, 10.0)}
    assert cells <= {(row["row"], row["dataset"], row["epsilon"]) for row in rows() if "fid" in row}


def test_rows_name_the_extractor_that_is_kept() -> None:
    """Figures of another extractor cannot be compared with these."""
    rows = [row for name in ("utility", "fidelity") for row in read_rows(name)]
    named = [row for row in rows if "extractor" in row]
    kept = {name: fixed_extractor(name)[1] for name in DATASETS}
    assert len(named) > 10
    assert {row["extractor"] for row in named} == set(kept.values())
    assert all(row["extractor"] == kept[row["dataset"]] for row in named)


def test_only_a_row_without_the_kept_extractor_takes_figures_of_another_run() -> None:
    older = {"dataset": "mnist", "accuracy_mean": 90.0, "fid": 1.0}
    again = {"accuracy_mean": 80.0, "fid": 2.0, "kid": 0.1, "extractor": "abc", "commit": "1234567"}
    assert take_fidelity(older, None) == older
    assert take_fidelity(older | {"extractor": "abc"}, again) == older | {"extractor": "abc"}
    assert take_fidelity(older, again) == older | {"fid": 2.0, "kid": 0.1, "fidelity_of": "1234567"}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_can_be_imported(path: Path) -> None:
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize(("name", "millions"), [("resnet", 1.73), ("wide_resnet", 8.9), ("resnext", 34.4)])
def test_classifiers_of_dpimagebench_have_as_many_weights_as_their_papers_say(name: str, millions: float) -> None:
    network = dpimagebench.build(name, 3, 10)
    assert sum(weight.numel() for weight in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_every_set_of_the_panel_has_a_data_card() -> None:
    assert set(panel_page.CARDS) == {row.dataset for row in measured.read_rows() if row.judge > 1}


def cell_of(seeds: int = 1, **changes: Any) -> dict[str, Any]:
    row = {"dataset": "mnist", "epsilon": 1.0, "method": "preset `auto`", "settings": [], "synthetic_images": 10}
    return row | {"epochs": 2, "seeds": seeds, "accuracy_mean": 90.0, "commit": "a", "fid": 5.0} | changes


def test_seeds_of_one_cell_are_pooled() -> None:
    others = [
        cell_of(2, first_seed=1, accuracies=[93.0, 96.0], commit="b", fid=7.0),
        cell_of(first_seed=3, accuracies=[1.0], epochs=3),
        cell_of(first_seed=3, accuracies=[1.0], dataset="fashion_mnist"),
    ]
    pooled = pool(cell_of(), others)
    assert pooled == cell_of(3, accuracy_mean=93.0, accuracy_std=3.0, accuracies=[90.0, 93.0, 96.0], commit="a, b")


def test_a_row_without_other_seeds_stays_as_it_is() -> None:
    assert pool(cell_of(3), [cell_of(first_seed=4, epochs=1)]) == cell_of(3)


def test_no_seed_counts_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        pool(cell_of(), [cell_of(accuracies=[91.0])])


def test_rows_whose_accuracies_were_not_kept_are_not_pooled() -> None:
    with pytest.raises(ValueError, match="not kept"):
        pool(cell_of(3), [cell_of(first_seed=3, accuracies=[91.0])])


def test_the_panel_names_the_cells_in_which_auto_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    baselines = {"method": "pooled_moments", "class_averages": 60.0, "moments": 50.0}
    lines = [
        {"cell": "mnist-500-1", "accuracy": 40.0} | baselines,
        {"cell": "mnist-500-1", "accuracy": 59.0} | baselines,
        {"cell": "mnist-2000-1", "accuracy": 58.9} | baselines,
        {"cell": "digits-1438-5", "accuracy": 40.0, "teach_accuracy": 59.0} | baselines,
    ]
    monkeypatch.setattr(panel, "read_results", lambda _name: lines)
    assert [line.partition(":")[0] for line in panel.check()] == ["mnist-2000-1"], "the latest line of a cell counts"
