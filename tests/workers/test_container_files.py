"""Dockerfile and docker-compose.yml, as far as they can be checked without a Docker engine."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from celery.bin.worker import worker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from datalens_service.base.settings import Settings
from datalens_service.workers.process.supervise_job import GRACE_SECONDS
from repository import ROOT

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
    shared = [volume for volume in services[name]["volumes"] if not volume.endswith(":ro")]
    assert shared == ["data:/data", "ledger:/ledger"]


def test_every_service_runs_without_root_and_capabilities_on_a_read_only_file_system(services: dict[str, Any]) -> None:
    allowed = {"cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck", "init", "logging"}
    allowed |= {"build", "image", "mem_limit", "networks", "pids_limit", "ports", "profiles", "read_only", "restart"}
    allowed |= {"security_opt", "stop_grace_period", "tmpfs", "user", "volumes"}
    for name, service in services.items():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert "/tmp" in service["tmpfs"], name  # noqa: S108
        # Nothing else that could give rights, as privileged, cap_add, devices, pid and network_mode do.
        assert set(service) <= allowed, name
        assert all(not volume.startswith(("/", "${")) or volume.endswith(":ro") for volume in service["volumes"]), name


def test_our_services_have_the_user_of_our_image(services: dict[str, Any]) -> None:
    [user] = re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)
    assert {services[name]["user"] for name in OURS} == {user}
    assert f"--uid {user.split(':')[0]} " in DOCKERFILE


def test_images_of_others_are_named_by_digest(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert "build" in service or re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", service["image"]), name
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert bases - stages == {"${PYTHON_IMAGE}"}
    assert re.search(r"^ARG PYTHON_IMAGE=python:[\w.-]+@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    # The frontend would be one more image.
    assert "syntax=" not in DOCKERFILE


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
    [extras] = re.findall(r"python requirements\.py (production .*?) >", DOCKERFILE)
    everything, small = installed_by(["worker", "production"]), installed_by(extras.split())
    assert "torch" in everything
    assert {"fastapi", "psycopg", "celery", "s3fs"} <= small & everything
    assert not [name for name in small if name.startswith(("torch", "nvidia", "triton"))]


def test_images_have_all_that_requests_and_jobs_may_ask_for() -> None:
    """But for demonstrations, publishing and development, which nobody does in them."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    needed = extras - {"demo", "hub", "mlflow", "dev"}
    api, *workers = [set(line.split()) for line in re.findall(r"python requirements\.py (\w.*?) >", DOCKERFILE)]
    assert api == needed - {"worker", "imagenet"}
    # One of them serves an API that draws images, too.
    assert workers == [needed, needed]


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_workers_have_a_folder_for_weights(services: dict[str, Any], name: str) -> None:
    assert "${WEIGHTS_FOLDER:-./weights}:/weights:ro" in services[name]["volumes"]
    assert "DATALENS_INCEPTION_WEIGHTS=/weights/" in (ROOT / "docs" / "deploy.md").read_text()
