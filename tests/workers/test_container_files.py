"""Dockerfile and docker-compose.yml, as far as they can be checked without a Docker engine.

deploy/kubernetes: valid by the schema of Kubernetes, hardened, and in step with the code.
"""

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from celery.bin.worker import worker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sqlalchemy import text

from datalens_service.base.settings import Settings
from datalens_service.store.database import Database
from datalens_service.workers.process.health import ALIVE_SECONDS
from datalens_service.workers.process.supervise_job import GRACE_SECONDS
from tests.store.books import claimed, new_dataset, new_job

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
OURS = ("api", "worker", "worker-gpu")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
REQUIREMENTS = ROOT / "deploy" / "docker" / "requirements.py"
SETTINGS = {f"DATALENS_{field.upper()}" for field in Settings.model_fields}
OF_THE_IMAGE = {f"DATALENS_{name}" for name in ("DATA_DIR", "LEDGER_LOG", "HOST", "PORT")}
CREDENTIALS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_compose_file_follows_the_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_worker_commands_are_ones_that_celery_takes(services: dict[str, Any], name: str) -> None:
    program, application, module, *arguments = services[name]["command"]
    assert (program, application, module) == ("celery", "-A", "datalens_service.workers.app")
    subcommand, *options = arguments
    assert subcommand == worker.name
    # Raises for an option that Celery does not know.
    found, rest, _ = worker.make_parser(click.Context(worker)).parse_args(options)
    assert rest == []
    assert found["concurrency"] == "1"


def test_api_command_exists(services: dict[str, Any]) -> None:
    program, subcommand = services["api"]["command"]
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert program in entry_points
    shown = subprocess.run([Path(sys.executable).parent / program, subcommand, "--help"], capture_output=True)
    assert shown.returncode == 0


@pytest.mark.parametrize("name", OURS)
def test_every_setting_of_env_reaches_api_and_workers_and_nothing_else_does(
    services: dict[str, Any], name: str
) -> None:
    passed = set(services[name]["environment"])
    assert passed == SETTINGS - OF_THE_IMAGE | CREDENTIALS, "name each setting in docker-compose.yml"
    # The image names the commit it was built of; .env may name another.
    assert set(re.findall(r"DATALENS_[A-Z_]+", DOCKERFILE)) == OF_THE_IMAGE | {"DATALENS_COMMIT"}


def test_no_setting_that_env_leaves_out_is_set_to_nothing(services: dict[str, Any]) -> None:
    """`${NAME:-}` would set an empty text, which most settings refuse; a name without a value is left out."""
    for name in OURS:
        values = [value for value in services[name]["environment"].values() if value is not None]
        assert not any(value.endswith(":-}") for value in values)


def test_every_container_has_limits_and_its_logs_an_end(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert service["logging"]["options"] == {"max-size": "20m", "max-file": "5"}, name


@pytest.mark.parametrize("name", OURS)
def test_api_and_workers_share_data_and_ledger_and_nothing_else(services: dict[str, Any], name: str) -> None:
    assert services[name]["volumes"] == ["data:/data", "ledger:/ledger"]
    assert services[name]["read_only"] is True
    assert services[name]["cap_drop"] == ["ALL"]


def test_only_the_api_can_be_reached_and_only_from_this_machine(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert list(published) == ["api"]
    assert all(port.startswith("127.0.0.1:") for port in published["api"])


def test_no_password_is_written_down(services: dict[str, Any]) -> None:
    environments = [service.get("environment", {}) for service in services.values()]
    secrets = [
        value
        for names in environments
        for name, value in names.items()
        if re.search("PASSWORD|SECRET|_URL", name) and value is not None
    ]
    assert secrets
    assert all(re.search(r"\$\{(POSTGRES|REDIS)_PASSWORD:\?", value) for value in secrets)


def test_container_waits_longer_than_a_job_process_may_take_to_end(services: dict[str, Any]) -> None:
    for name in ("worker", "worker-gpu"):
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS


def test_image_has_everything_that_compose_and_dockerfile_copy() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    named = {name for line in copied for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text()
    assert named
    for name in named:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored.splitlines()


def printed(*arguments: str) -> list[str]:
    command = [sys.executable, REQUIREMENTS, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]


def installed_by(extras: list[str]) -> set[str]:
    """What an image with these extras has, with all that it needs."""
    waiting, known = [Requirement(line) for line in printed(*extras)], set()
    while waiting:
        needed = waiting.pop()
        for extra in ("", *needed.extras):
            if (key := (canonicalize_name(needed.name), extra)) in known:
                continue
            known.add(key)
            needs = (Requirement(text) for text in requires(needed.name) or ())
            waiting += [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in known}


def test_image_of_the_api_has_no_torch() -> None:
    everything, small = installed_by(["worker", "production"]), installed_by(["production"])
    assert "torch" in everything
    assert {"fastapi", "psycopg", "celery", "s3fs"} <= small < everything
    assert not [name for name in small if name.startswith(("torch", "nvidia", "triton"))]


def metadata_name(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    return str(metadata.get("name") or metadata["generateName"].rstrip("-"))


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
    assert (program, application, module, subcommand) == ("celery", "-A", "datalens_service.workers.app", worker.name)
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


@pytest.mark.parametrize("item", KEDA, ids=named)
def test_autoscaler_is_valid_by_the_custom_resources_of_keda(item: dict[str, Any]) -> None:
    """Against the models that `cloudcoil-models-keda` generates from the custom resource definitions of KEDA.

    They ignore members that they do not know, so what comes out is compared with what went in.
    """
    from cloudcoil.models.keda import v1alpha1

    group, version = item["apiVersion"].split("/")
    assert (group, version) == ("keda.sh", "v1alpha1")
    model = getattr(v1alpha1, item["kind"]).model_validate(item)
    assert model.model_dump(by_alias=True, exclude_unset=True, mode="json") == item


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
