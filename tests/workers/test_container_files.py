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

from datalens_service.settings import Settings
from workers.process.supervise_job import GRACE_SECONDS

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
OURS = ("api", "worker", "worker-gpu")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXTRAS = {"api": ["production"], "worker-cpu": ["worker", "production"], "worker-cuda": ["worker", "production"]}
"""Of each image."""
REQUIREMENTS = ROOT / "deploy" / "docker" / "requirements.py"
SETTINGS = {f"DATALENS_{field.upper()}" for field in Settings.model_fields}
OF_THE_IMAGE = {f"DATALENS_{name}" for name in ("DATA_DIR", "LEDGER_LOG", "HOST", "PORT")}
# The image names the commit it was built of; .env may name another.
DEFAULTS_OF_THE_IMAGE = {"DATALENS_COMMIT"}
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
    assert (program, application, module) == ("celery", "-A", "workers.app")
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
    assert set(services[name]["environment"]) == SETTINGS - OF_THE_IMAGE | CREDENTIALS
    assert set(re.findall(r"DATALENS_[A-Z_]+", DOCKERFILE)) == OF_THE_IMAGE | DEFAULTS_OF_THE_IMAGE


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


def test_images_of_others_are_of_one_version(services: dict[str, Any]) -> None:
    named = [service["image"] for name, service in services.items() if name not in OURS]
    named += re.findall(r"^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert len(named) == 3
    for image in named:
        assert re.fullmatch(r"[a-z/]+:\d+(\.\d+){1,2}-[a-z-]+|.+@sha256:[0-9a-f]{64}", image), image
        assert not re.search(r":\d+-", image), f"{image} moves"


def test_our_images_are_those_of_this_version_and_built_from_their_stage(services: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    targets = dict(zip(OURS, ("${API_IMAGE:-api}", "worker-cpu", "worker-cuda"), strict=True))
    for name, target in targets.items():
        assert services[name]["image"] == f"datalens-service-{target}:${{DATALENS_VERSION:-{version}}}"
        assert services[name]["build"] == {"context": ".", "target": target}
    assert stages().keys() >= EXTRAS.keys()
    assert list(stages())[-1] == "worker-cuda"


@pytest.mark.parametrize("name", OURS)
def test_api_and_workers_share_data_and_ledger_and_nothing_else(services: dict[str, Any], name: str) -> None:
    assert services[name]["volumes"] == ["data:/data", "ledger:/ledger"]
    assert services[name]["read_only"] is True
    assert services[name]["cap_drop"] == ["ALL"]


def test_api_and_workers_are_one_user_as_their_files_are_for_that_user_alone(services: dict[str, Any]) -> None:
    assert all("user" not in services[name] for name in OURS)
    image = DOCKERFILE
    assert re.findall(r"^USER (.*)$", image, re.MULTILINE) == ["datalens"]
    assert "--mode 0700 /data /ledger" in image


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


def test_images_do_not_run_as_root_and_check_their_health() -> None:
    for name in EXTRAS:
        base, instructions = stages()[name]
        assert base == "runtime"
        assert instructions.split() == ["COPY", f"--from=build-{name}", "/opt/datalens", "/opt/datalens"]
    _, runtime = stages()["runtime"]
    assert re.search(r"^USER datalens$", runtime, re.MULTILINE)
    assert "/livez" in runtime


def test_image_has_everything_that_compose_and_dockerfile_copy() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    named = {name for line in copied for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text()
    assert named
    for name in named:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored.splitlines()


def stages() -> dict[str, tuple[str, str]]:
    """By name: what a stage of the Dockerfile begins with, and its instructions."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {name: (base, text) for base, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


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
    everything, small = installed_by(EXTRAS["worker-cuda"]), installed_by(EXTRAS["api"])
    assert "torch" in everything
    assert {"fastapi", "psycopg", "celery", "s3fs"} <= small < everything
    assert not [name for name in small if name.startswith(("torch", "nvidia", "triton"))]


@pytest.mark.parametrize("name", EXTRAS)
def test_images_install_what_the_lock_names_by_hash(name: str) -> None:
    base, instructions = stages()[f"build-{name}"]
    assert base == "build"
    assert f"requirements.py {' '.join(EXTRAS[name])} > requirements.txt" in instructions
    assert "pip install --require-hashes --constraint requirements.lock --requirement requirements.txt" in instructions
    assert ("--index-url" in instructions) == (name == "worker-cpu"), "only builds without CUDA come from elsewhere"


def test_torch_without_cuda_has_the_versions_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {name: re.search(rf"^{name}==(\S+)", lock, re.MULTILINE) for name in ("torch", "torchvision")}
    assert printed("--torch-cpu") == [f"{name}=={found and found[1]}+cpu" for name, found in pinned.items()]
    _, instructions = stages()["build-worker-cpu"]
    assert instructions.index("--torch-cpu") < instructions.index("requirements.py worker"), "else CUDA comes first"
