"""Figures of a job in MLflow: those that anybody may see, from the releasable report alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.base.parsing import spell_number
from datalens_service.client import Client
from datalens_service.privacy.guarantee import report_guarantee

_PREFIX: Final = "datalens"


@dataclass(frozen=True)
class ReleasedFigures:
    """Figures and parameters to be logged.

    Attributes:
        params: The training request, flat: "method.name", "epsilon", ….
        metrics: ε, δ, μ and measures by name.
        tags: The source of the figures.
    """

    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def log_to_mlflow(
    client: Client, job_id: str, *, experiment: str | None = None, tracking_uri: str | None = None
) -> str:
    """Log the released figures of a job as one run, and return its id.

    Args:
        experiment: Name; None takes MLflow's own default.
        tracking_uri: Address that runs are kept at; None takes MLflow's own default.

    Raises:
        WorkerUnavailable: MLflow is not installed.
        ClientError: The service refused.
    """
    if find_spec("mlflow") is None:
        raise WorkerUnavailable("MLflow is not installed. Run: pip install 'datalens-service[mlflow]'.")
    # Else MLflow reports its use to its makers.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    figures = released_figures(client.report(job_id, audience="releasable"))
    tracking = MlflowClient(tracking_uri=tracking_uri)
    run_id: str = tracking.create_run(_experiment_id(tracking, experiment), run_name=job_id).info.run_id
    for name, value in figures.params.items():
        tracking.log_param(run_id, name, value)
    for name, figure in figures.metrics.items():
        tracking.log_metric(run_id, name, figure)
    for name, value in {**figures.tags, f"{_PREFIX}.job": job_id}.items():
        tracking.set_tag(run_id, name, value)
    tracking.set_terminated(run_id)
    return run_id


def released_figures(report: Mapping[str, Any]) -> ReleasedFigures:
    """Return the figures of a report.

    Raises:
        InvalidInput: The report is the owner's, or has a figure in it that is.
    """
    owners = [measure["name"] for measure in report["measures"] if measure["audience"] != "public"]
    if report["view"] != "releasable" or owners:
        raise InvalidInput("Only a releasable report is logged: this one has figures for the owner alone.")
    privacy = report["privacy"]
    requested = next(point for point in privacy["headline"]["points"] if point["chosen"] == "requested")
    replace_one = next(point for point in privacy["replace_one"]["points"] if point["chosen"] == "requested")
    measures = {measure["name"]: float(measure["value"]) for measure in report["measures"]}
    guarantee = {
        "epsilon": requested["epsilon"],
        "delta": requested["delta"],
        "mu": privacy["headline"]["mu"],
        "epsilon_replace_one": replace_one["epsilon"],
    }
    return ReleasedFigures(flatten(report["method"]["spec"]), {**guarantee, **measures}, _tags(report))


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested objects to dotted names, with values as text."""
    flat: dict[str, str] = {}
    for name, value in document.items():
        flat |= (
            flatten(value, f"{prefix}{name}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{name}": str(spell_number(value))}
        )
    return flat


def _tags(report: Mapping[str, Any]) -> dict[str, str]:
    product = report["product"]
    return {
        f"{_PREFIX}.version": f"{product['version']} ({product['commit']})",
        f"{_PREFIX}.report_sha256": report["seal"]["sha256"],
        f"{_PREFIX}.unit": report["privacy"]["unit"],
        f"{_PREFIX}.guarantee": report_guarantee(report["privacy"]),
    }


def _experiment_id(tracking: Any, name: str | None) -> str:
    if name is None:
        return "0"
    experiment = tracking.get_experiment_by_name(name)
    return str(tracking.create_experiment(name) if experiment is None else experiment.experiment_id)
