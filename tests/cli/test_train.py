"""`datalens train`: from a file to synthetic images, resumed after any end, never paying twice."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import select
from typer.testing import Result

from cli.embedded_runs import held, job_and_spends, votes
from cli.service import DATALENS, PATIENCE
from datalens_service.cli import options, review
from datalens_service.cli.specs import SpecOptions
from datalens_service.data import read_upload
from datalens_service.evaluation.evaluate import NOTHING, Evaluation
from datalens_service.jobs import embedded_run as local_run_module
from datalens_service.jobs.embedded_run import open_embedded_run
from datalens_service.spec import Device
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs
from datalens_service.store.schema.tables import JobRow, RecordFingerprintRow
from tests.data.builders import encoded, write_zip

Run = Callable[..., Result]
Json = Callable[..., Any]

FAST = ("--method", "moments", "--set", "subspace_dimensions=8", "--synthetic-images", "50", "--no-evaluation")


def train(data: Path, *options: object, epsilon: float = 2) -> tuple[object, ...]:
    return ("train", "--confirm-classes", "--data", data, "--epsilon", epsilon, "--out", "out", *options)


SECRET = "patient-4711"  # noqa: S105


def test_what_was_ignored_is_said_on_stderr_and_in_no_file(datalens: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    images = [encoded(Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))) for _ in range(40)]
    files = {f"train/{number % 2}/{number}.png": image for number, image in enumerate(images)}
    data = write_zip(tmp_path / "folders.zip", {**files, f"val/{SECRET}/1.png": images[-1]})
    result = datalens(*train(data, "--delta", 1e-3, "--json", *FAST))
    assert result.exit_code == 0, result.output
    assert f"Notice: ignored_split, 1 (val/{SECRET}/1.png)" in result.stderr
    assert SECRET not in result.stdout
    contents = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(contents) > 10
    assert not any(SECRET.encode() in content or b"ignored_split" in content for content in contents)


def test_what_is_there_at_the_end(datalens_json: Json, npz: Path, tmp_path: Path) -> None:
    outcome = datalens_json(*train(npz, *FAST))
    assert (outcome["state"], outcome["method"], outcome["error"]) == ("succeeded", "moments", None)
    assert 1.99 < outcome["privacy"]["epsilon_spent"] <= 2
    assert outcome["measures"] == []
    owners = {name for name, audience in outcome["audiences"].items() if audience == "owner"}
    assert owners == {"report.json", "report.html", "evidence.html", "account-proof.json"}
    assert outcome["audiences"].keys() == outcome["files"].keys()
    assert all((tmp_path / path).stat().st_size > 0 for path in outcome["files"].values())
    with np.load(tmp_path / outcome["files"]["synthetic.npz"], allow_pickle=False) as synthetic:
        assert synthetic["train_images"].shape == (50, 8, 8)
    assert pq.read_table(tmp_path / outcome["files"]["synthetic.parquet"]).num_rows == 50
    assert {"samples.png", "report.html", "report-releasable.html", "card.json"} <= set(outcome["files"])
    report = json.loads((tmp_path / outcome["files"]["report.json"]).read_text())
    key = tmp_path / outcome["files"]["signing-key.pem"]
    for name in ("privacy.json", "report-releasable.json", "report.json"):
        checked = datalens_json("verify", "--key", key, tmp_path / outcome["files"][name])
        assert checked["holds"]
        assert [line["status"] for line in checked["lines"] if line["check"] == "signature"] == ["holds"]
    reads = {row["access"]: row["status"] for row in report["privacy"]["data_accesses"]}
    expected = {"training": "charged", "pictures of the upload": "none", "reading the upload": "none"}
    assert reads | expected == reads


def test_the_device_that_is_named_is_the_one(
    datalens: Run, datalens_json: Json, npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_args(options.DeviceName) == tuple(Device)
    command = ("train", "--confirm-classes", "--data", npz, "--epsilon", 2, *FAST)
    # A GPU that no machine has: whoever looked for it would fail.
    monkeypatch.setenv("DATALENS_DEVICE", "cuda:99")
    assert datalens_json(*command, "--out", "cpu", "--device", "cpu")["state"] == "succeeded"
    monkeypatch.setenv("DATALENS_DEVICE", "cpu")
    refused = datalens(*command, "--out", "gpu", "--device", "gpu", "--json")
    outcome = json.loads(refused.stdout)
    assert (refused.exit_code, outcome["error"]["type"]) == (1, "worker-unavailable")
    assert outcome["privacy"]["epsilon_spent"] == 0


def test_images_are_in_the_folder_before_they_are_measured_and_written_once(
    datalens: Run, npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early: dict[str, int] = {}

    def look(*_: Any, **__: Any) -> Evaluation:
        early.update((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "out").iterdir())
        return NOTHING

    monkeypatch.setattr("datalens_service.jobs.run_evaluation.evaluate", look)
    measured = [option for option in FAST if option != "--no-evaluation"]
    result = datalens(*train(npz, *measured))
    assert result.exit_code == 0, result.output
    names = ("synthetic.npz", "synthetic.parquet", "generator.safetensors", "samples.png", "privacy.json")
    assert early.keys() >= set(names)
    assert (tmp_path / "out" / "synthetic.parquet").stat().st_mtime_ns == early["synthetic.parquet"]
    assert "The images are ready in out" in result.stderr


def test_the_same_command_again_spends_nothing(datalens: Run, datalens_json: Json, npz: Path) -> None:
    command = train(npz, *FAST)
    first = datalens_json(*command)
    again = datalens(*command, "--json")
    assert json.loads(again.stdout) == first
    assert "nothing was spent again" in again.stderr
    assert len(job_and_spends()[1]) == 3


def test_a_job_that_was_stored_under_a_former_method_is_found_again(datalens: Run, npz: Path) -> None:
    settings = ("num_teachers=8", "shards=mixed", "images_per_step=4", "vote_dimensions=9", "steps=2")
    words = [word for one in settings for word in ("--set", one)]
    command = train(npz, "--method", "gs_wgan", "--synthetic-images", "50", "--no-evaluation", *words)
    assert datalens(*command).exit_code == 0
    with open_embedded_run(Path("out")) as embedded_run, embedded_run.database.transaction() as session:
        job = session.scalars(select(JobRow)).one()
        former = {name: value for name, value in job.spec["method"].items() if name not in ("stochastic", "threshold")}
        job.spec = job.spec | {"method": former | {"name": "gs_wgan", "student_learning_rate": None}}
    assert "nothing was spent again" in datalens(*command).stderr


def test_other_settings_get_what_is_left_of_the_budget(datalens: Run, datalens_json: Json, npz: Path) -> None:
    datalens_json(*train(npz, *FAST))
    result = datalens(*train(npz, *FAST), "--seed", 1, "--json")
    assert result.exit_code == 3
    problem = json.loads(result.stdout)["error"]
    assert problem["code"] == "privacy-budget-exceeded"
    assert problem["epsilon_remaining"] < 0.05


def test_a_run_is_found_again_however_many_came_after_it(
    datalens: Run, npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_run_module, "_PAGE", 1)
    assert datalens(*train(npz, *FAST)).exit_code == 0
    with open_embedded_run(Path("out")) as embedded_run:
        [stored] = datasets.list_datasets(embedded_run.database).items
        cheaper = [SpecOptions(1e-3, method="moments", seed=seed).build_spec(stored.schema) for seed in range(2)]
        for spec in cheaper:
            jobs.request_cancel(embedded_run.database, embedded_run.find_or_create_job(stored, spec).id)
    assert "nothing was spent again" in datalens(*train(npz, *FAST)).stderr


def test_another_data_set_needs_another_folder(datalens: Run, datalens_json: Json, npz: Path, tmp_path: Path) -> None:
    datalens_json(*train(npz, *FAST))
    with np.load(npz) as arrays:
        changed = dict(arrays)
    changed["train_images"][0, 0, 0] ^= 1
    np.savez(tmp_path / "other.npz", **changed)
    result = datalens(*train(tmp_path / "other.npz", *FAST), "--json")
    assert result.exit_code == 2
    assert "another data set" in json.loads(result.stdout)["error"]["detail"]


def test_a_folder_with_other_files_is_left_alone(datalens: Run, npz: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("mine")
    result = datalens(*train(npz, *FAST))
    assert result.exit_code == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_a_refused_request_leaves_nothing_behind(datalens: Run, npz: Path, tmp_path: Path) -> None:
    result = datalens(*train(npz, "--set", "num_teachers=81"))
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_only_one_process_works_in_a_folder(datalens: Run, npz: Path) -> None:
    with open_embedded_run(Path("out")):
        result = datalens(*train(npz, *FAST), "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "state-conflict"


def test_the_service_of_the_environment_is_not_touched(
    datalens_json: Json, npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATALENS_DATABASE_URL", f"sqlite:///{tmp_path / 'service.db'}")
    monkeypatch.setenv("DATALENS_LEDGER_LOG", str(tmp_path / "service.log"))
    monkeypatch.setenv("DATALENS_EXECUTOR", "celery")
    datalens_json(*train(npz, *FAST))
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize(("epsilon", "fate", "code"), [(2, "cancelled", 0), (3, "queued", 3)])
def test_an_unfinished_run_makes_way_for_another_that_can_be_paid(
    datalens: Run, npz: Path, epsilon: int, fate: str, code: int
) -> None:
    upload = read_upload(npz)
    spec = SpecOptions(epsilon=2.0, method="moments").build_spec(upload.schema)
    with open_embedded_run(Path("out")) as embedded_run:
        stored = embedded_run.find_or_create_dataset(upload, "npz", 2.0, None, review.skip)
        left = embedded_run.find_or_create_job(stored, spec)
    result = datalens(*train(npz, *FAST, epsilon=epsilon))
    assert result.exit_code == code, result.output
    with open_embedded_run(Path("out")) as embedded_run:
        assert jobs.get(embedded_run.database, left.id).state == fate


def test_a_killed_run_goes_on_when_it_is_started_again(datalens_json: Json, npz: Path, tmp_path: Path) -> None:
    command = ["train", "--confirm-classes", "--data", str(npz), *votes()]
    with held([DATALENS[-1], *command], tmp_path, 4, "charge") as process:
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    job, spends = job_and_spends()
    assert 0 < len(spends) < 20
    assert not job.state.terminal
    assert datalens_json(*command)["state"] == "succeeded"
    job, spends = job_and_spends()
    # A step that was charged and whose noise may have been drawn is charged again, and no other.
    steps = [entry.step for entry in spends]
    assert len(steps) - len(set(steps)) <= 1
    assert job.charged_units == sum(entry.ledger_units for entry in spends)
    assert job.reserved_units == 0


def test_the_ledger_of_a_folder_knows_whole_patients(datalens_json: Json, npz: Path, tmp_path: Path) -> None:
    datalens_json(*train(npz, *FAST))
    with open_embedded_run(tmp_path / "out") as embedded_run, embedded_run.database.session() as session:
        assert set(session.scalars(select(RecordFingerprintRow.unit_print))) == {None}
    arrays = dict(np.load(npz))
    grouped = tmp_path / "grouped.npz"
    count = len(next(iter(arrays.values())))
    np.savez(grouped, **arrays, groups=np.arange(count) // 2)
    datalens_json(
        "train", "--confirm-classes", "--data", grouped, "--epsilon", 2, "--out", "out2", *FAST, "--records-per-unit", 2
    )
    with open_embedded_run(tmp_path / "out2") as embedded_run, embedded_run.database.session() as session:
        prints = list(session.scalars(select(RecordFingerprintRow.unit_print)))
    assert None not in prints
    assert len(set(prints)) <= -(-count // 2)
