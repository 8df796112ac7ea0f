"""deploy/kubernetes: valid by the schema of Kubernetes, hardened, and in step with the code."""

import importlib.util
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from celery.bin.worker import worker
from sqlalchemy import text

from datalens_service.settings import Settings
from datalens_service.store.database import Database
from tests.store.books import claimed, new_dataset, new_job
from workers.process.health import ALIVE_SECONDS
from workers.process.supervise_job import GRACE_SECONDS


def metadata_name(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    return str(metadata.get("name") or metadata["generateName"].rstrip("-"))


ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: list[dict[str, Any]] = [
    document for name in KUSTOMIZATION["resources"] for document in yaml.safe_load_all((FOLDER / name).read_text())
]
RANKS: list[dict[str, Any]] = [
    document
    for name in ("ranks.yaml", "ranks-network.yaml")
    for document in yaml.safe_load_all((FOLDER / "examples" / name).read_text())
]
PODS: dict[str, dict[str, Any]] = {
    metadata_name(item): item["spec"]["template"]["spec"]
    for item in OBJECTS + RANKS
    if item["kind"] in ("Deployment", "Job")
}
KEDA = list(yaml.safe_load_all((FOLDER / "examples" / "keda.yaml").read_text()))
SETTINGS = {f"DATALENS_{field.upper()}" for field in Settings.model_fields}
VERSIONS = ("1.30", "1.34")
MEETING_POINT = {"RANK", "WORLD_SIZE", "GROUP", "MASTER_ADDR", "MASTER_PORT"}


def named(item: dict[str, Any]) -> str:
    return f"{item['kind']} {metadata_name(item)}"


def container(name: str) -> dict[str, Any]:
    [only] = PODS[name]["containers"]
    return dict(only)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_by_the_schema_of_kubernetes(version: str) -> None:
    for item in OBJECTS + RANKS:
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_pods_run_without_rights_and_with_limits(name: str) -> None:
    pod, only = PODS[name], container(name)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(only["resources"]["limits"])


@pytest.mark.parametrize("name", PODS)
def test_settings_exist_and_secrets_come_by_reference(name: str) -> None:
    shared = next(item["data"] for item in OBJECTS if item["kind"] == "ConfigMap")
    variables = container(name)["env"]
    assert {variable["name"] for variable in variables} - MEETING_POINT | set(shared) <= SETTINGS
    variables = [variable for variable in variables if variable["name"] not in MEETING_POINT]
    secret = {variable["name"] for variable in variables if "valueFrom" in variable}
    assert {"DATALENS_DATABASE_URL"} <= secret <= {"DATALENS_DATABASE_URL", "DATALENS_BROKER_URL"}
    assert not secret & set(shared)
    values = {variable["name"]: variable["value"] for variable in variables if "value" in variable}
    fields = {key.removeprefix("DATALENS_").lower(): value for key, value in (shared | values).items()}
    Settings(**fields, broker_url="redis://localhost:6379/0")


@pytest.mark.parametrize(("name", "queue"), [("datalens-worker-cpu", "cpu"), ("datalens-worker-gpu", "gpu")])
def test_workers_serve_their_kind_of_device(name: str, queue: str) -> None:
    only = container(name)
    program, application, module, subcommand, *options = only["command"]
    assert (program, application, module, subcommand) == ("celery", "-A", "workers.app", worker.name)
    _, rest, _ = worker.make_parser(click.Context(worker)).parse_args(options)
    assert rest == []
    assert {"name": "DATALENS_QUEUE", "value": queue} in only["env"]
    assert ("nvidia.com/gpu" in only["resources"]["limits"]) == (queue == "gpu")
    assert PODS[name]["terminationGracePeriodSeconds"] > GRACE_SECONDS


@pytest.mark.parametrize("name", ["datalens-worker-cpu", "datalens-worker-gpu"])
def test_probes_ask_what_the_worker_answers(name: str) -> None:
    only = container(name)
    probes = [only[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    modules = [probe["exec"]["command"][2] for probe in probes]
    assert all(importlib.util.find_spec(module) for module in modules)
    alive = only["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] < ALIVE_SECONDS
    assert "--ready" not in alive["exec"]["command"]


def check_by_custom_resource(item: dict[str, Any]) -> None:
    """Against the models that `cloudcoil-models-keda` generates from the custom resource definitions of KEDA.

    They ignore members that they do not know, so what comes out is compared with what went in.
    """
    from cloudcoil.models.keda import v1alpha1

    group, version = item["apiVersion"].split("/")
    assert (group, version) == ("keda.sh", "v1alpha1")
    model = getattr(v1alpha1, item["kind"]).model_validate(item)
    assert model.model_dump(by_alias=True, exclude_unset=True, mode="json") == item


@pytest.mark.parametrize("item", KEDA, ids=named)
def test_autoscaler_is_valid_by_the_custom_resources_of_keda(item: dict[str, Any]) -> None:
    check_by_custom_resource(item)


def test_autoscaler_counts_the_jobs_of_its_queue(database: Database) -> None:
    scaled = next(item for item in KEDA if item["kind"] == "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] in PODS
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] in {item["metadata"]["name"] for item in KEDA}
    dataset = new_dataset(database)
    for queue in ("gpu", "gpu", "cpu"):
        new_job(database, dataset.id, 1, queue=queue)
    claimed(database, new_job(database, dataset.id, 1, queue="gpu").id)
    with database.connection() as connection:
        assert connection.scalar(text(trigger["metadata"]["query"])) == 3
