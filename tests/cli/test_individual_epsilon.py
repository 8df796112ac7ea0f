"""Individual ε on the command line: from the file of a local run, and from a service."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli.service import RunningService
from datalens_service.cli.failures import ExitCode
from datalens_service.client import Client

Run = Callable[..., Any]
SETTINGS = (
    "architecture=linear", "steps=5", "learning_rate=0.01", "clip_norm=20", "accounting=per_instance",
    "histogram_noise=100",
)  # fmt: skip
TRAIN = ("--epsilon", 8, "--method", "dp_sgd", *(part for one in SETTINGS for part in ("--set", one)))


@pytest.fixture
def image(npz: Path, tmp_path: Path) -> Path:
    with np.load(npz) as arrays:
        Image.fromarray(np.asarray(arrays["test_images"])[0]).save(tmp_path / "one.png")
    return tmp_path / "one.png"


def test_a_local_run_leaves_iterates_that_answer_for_any_record(
    datalens: Run, datalens_json: Run, npz: Path, image: Path
) -> None:
    plan = datalens("plan", "--data", npz, *TRAIN)
    assert "iterates that are kept" in plan.stdout
    trained = datalens_json("train", "--confirm-classes", "--data", npz, *TRAIN, "--no-evaluation", "--out", "out")
    iterates = trained["files"]["iterates.safetensors"]
    assert trained["audiences"]["iterates.safetensors"] == "anyone"
    answer = datalens_json("individual-epsilon", iterates, image, "--label", 0)
    assert 0 < answer["epsilon"] <= answer["epsilon_of_job"] <= 8
    assert answer["steps"] == 5
    shown = datalens("individual-epsilon", iterates, image, "--label", 0)
    assert "realised individual ε" in shown.stdout
    verdict = datalens("verify", trained["files"]["privacy.json"])
    assert verdict.exit_code == 0
    assert "Mean individual ε" in verdict.stdout
    for wrong, label in ((image, 0), (trained["files"]["classifier.safetensors"], 0), (iterates, 99)):
        refused = datalens("individual-epsilon", wrong, image, "--label", label, "--json")
        assert refused.exit_code == ExitCode.BAD_INPUT, refused.output


def test_a_service_answers_the_same_as_the_file(
    datalens_json: Run, service: RunningService, npz: Path, image: Path, tmp_path: Path
) -> None:
    here = service.access
    dataset = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 20, *here)["id"]
    job = datalens_json("jobs", "submit", dataset, *TRAIN, "--no-evaluation", "--wait", *here)["id"]
    remote = datalens_json("individual-epsilon", job, image, "--label", 1, *here)
    with Client(service.url, service.api_key) as client:
        local = client.download_file(job, "iterates.safetensors", tmp_path / "iterates.safetensors")
        assert client.individual_epsilon(job, image, 1).model_dump() == remote
    assert datalens_json("individual-epsilon", local, image, "--label", 1) == remote
