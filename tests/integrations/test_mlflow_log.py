"""MLflow gets what the releasable report says, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from datalens_service.base.errors import InvalidInput
from datalens_service.client import Client
from datalens_service.integrations.mlflow_log import log_to_mlflow, released_figures

from .conftest import Released

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "privacy-report.json"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of files, which this version of MLflow has to be asked for."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "runs").as_uri()


@pytest.fixture
def example() -> dict[str, Any]:
    return dict(json.loads(EXAMPLE.read_text(encoding="utf-8")))


def test_a_run_has_the_guarantee_and_the_request(released: Released, store: str) -> None:
    from mlflow.tracking import MlflowClient

    run_id = log_to_mlflow(released.client, released.job.id, experiment="halves", tracking_uri=store)
    run = MlflowClient(tracking_uri=store).get_run(run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", released.job.id)
    assert run.data.params["method.name"] == "moments"
    assert 0.9 < run.data.metrics["epsilon"] <= 1.0
    assert run.data.metrics.keys() == {"epsilon", "delta", "mu", "epsilon_replace_one"}
    again = log_to_mlflow(released.client, released.job.id, experiment="halves", tracking_uri=store)
    assert MlflowClient(tracking_uri=store).get_run(again).info.experiment_id == run.info.experiment_id


def test_mlflow_does_not_report_to_its_makers(released: Released, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.environment_variables import MLFLOW_DISABLE_TELEMETRY

    monkeypatch.setenv(MLFLOW_DISABLE_TELEMETRY.name, "false")
    monkeypatch.delenv(MLFLOW_DISABLE_TELEMETRY.name)
    log_to_mlflow(released.client, released.job.id, tracking_uri=store)
    assert MLFLOW_DISABLE_TELEMETRY.get()


def test_no_file_of_the_store_has_what_is_for_the_owner(released: Released, store: str, tmp_path: Path) -> None:
    log_to_mlflow(released.client, released.job.id, tracking_uri=store)
    secret = released.client.report(released.job.id)["dataset"]["fingerprint"]["value"]
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not [path for path in written if secret in path.read_text() or secret in path.name]


def test_the_owners_report_is_not_logged(
    released: Released, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = released.client.report(released.job.id, audience="owner")
    monkeypatch.setattr(Client, "report", lambda *_, **__: owners)
    with pytest.raises(InvalidInput, match="Only a releasable report"):
        log_to_mlflow(released.client, released.job.id, tracking_uri=store)
    assert not (tmp_path / "runs").exists()


def test_public_measures_are_logged_by_name(example: dict[str, Any]) -> None:
    metrics = released_figures(example).metrics
    assert {name: metrics[name] for name in ("epsilon", "delta")} == {"epsilon": 1.0, "delta": 1e-5}
    assert {one["name"]: one["value"] for one in example["measures"]}.items() <= metrics.items()


def test_one_figure_of_the_owner_is_enough_to_refuse(example: dict[str, Any]) -> None:
    example["measures"][0]["audience"] = "owner"
    with pytest.raises(InvalidInput, match="for the owner alone"):
        released_figures(example)
