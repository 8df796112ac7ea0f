"""deploy/kubernetes as Kustomize renders it: valid by schemas, without rights, whole, and in step with the code."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import kubernetes_validate
import pytest
import yaml
from celery.bin.worker import worker
from sqlalchemy import text

from datalens_service.api.application import create_app
from datalens_service.base.settings import Settings, secret_settings
from datalens_service.store.database import Database
from datalens_service.workers.process.health import ALIVE_SECONDS
from datalens_service.workers.process.supervise_job import GRACE_SECONDS
from other_programs import find_program
from repository import ROOT
from tests.store.books import claimed, new_dataset, new_job

Object = dict[str, Any]

FOLDER = ROOT / "deploy" / "kubernetes"
RULES = FOLDER / "components" / "monitoring" / "rules.yaml"
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
VERSIONS = ("1.30", "1.37")
"""The oldest version that knows all that is used, and the newest."""
PREFIX = "DATALENS_"
SETTINGS = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
SECRETS = {f"{PREFIX}{name.upper()}" for name in secret_settings()}
RANKS = {"RANK", "WORLD_SIZE", "GROUP", "MASTER_ADDR", "MASTER_PORT"}
BACKUP = {"PGSERVICEFILE", "PGSERVICE", "HOME"}
UNITS = {"": 1, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
USER = 10001
CLOSING_SECONDS = 5
QUEUES = {"datalens-worker-cpu": "cpu", "datalens-worker-gpu": "gpu"}


class Pod(NamedTuple):
    """What a template of an object has pods made of."""

    owner: str
    labels: dict[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        return [*self.spec["containers"], *self.spec.get("initContainers", [])]


def render(folder: Path) -> list[Object]:
    kubectl = find_program("kubectl")
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def read(*names: str) -> list[Object]:
    return [item for name in names for item in yaml.safe_load_all((FOLDER / "examples" / name).read_text())]


@pytest.fixture(scope="module")
def production() -> list[Object]:
    """All that a production has."""
    return render(FOLDER / "production")


@pytest.fixture(scope="module")
def examples() -> list[Object]:
    return read("ranks.yaml", "ranks-network.yaml", "weights.yaml")


@pytest.fixture(scope="module")
def pods(production: list[Object], examples: list[Object]) -> list[Pod]:
    """All pods, of the examples too."""
    found = [pod for item in production + examples for pod in find_pods(item)]
    assert len(found) == 7
    return found


def find_pods(item: Object) -> Iterator[Pod]:
    """Every template of pods, wherever an object has it."""
    if item["kind"] == "Pod":
        yield Pod(name_of(item), item["metadata"]["labels"], item["spec"])
    waiting: list[Any] = [item]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            template = one.get("template")
            if isinstance(template, dict) and "containers" in template.get("spec", {}):
                yield Pod(name_of(item), template["metadata"]["labels"], template["spec"])
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def name_of(item: Object) -> str:
    metadata = item["metadata"]
    return str(metadata.get("name") or metadata["generateName"].rstrip("-"))


def of_kind(items: list[Object], kind: str) -> dict[str, Object]:
    return {name_of(item): item for item in items if item["kind"] == kind}


def variables(container: Object) -> dict[str, str | None]:
    """Its variables; None stands for a value from elsewhere."""
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}


def count_bytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w*)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def validate(item: Object, version: str) -> None:
    """Raise for what the schema of its kind does not have.

    Models of custom resources ignore members that they do not know, so what comes out is compared with what went in.
    """
    group, _, api = item["apiVersion"].partition("/")
    if group in ("monitoring.coreos.com", "keda.sh"):
        package = "prometheus_operator" if group == "monitoring.coreos.com" else "keda"
        models = importlib.import_module(f"cloudcoil.models.{package}.{api}")
        model = getattr(models, item["kind"]).model_validate(item)
        assert model.model_dump(by_alias=True, exclude_unset=True, mode="json") == item
    else:
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_by_the_schema_of_its_kind(
    production: list[Object], examples: list[Object], version: str
) -> None:
    for item in production + examples + read("keda.yaml"):
        validate(item, version)


def test_schemas_refuse_what_they_do_not_know(production: list[Object]) -> None:
    for item in production:
        part = next(part for part in ("spec", "data", "metadata") if part in item)
        wrong = {**item, part: {**item[part], "labels" if part == "metadata" else "unheardOf": 1}}
        if part == "data":
            wrong = {**item, part: {"number": 1}}
        with pytest.raises((kubernetes_validate.ValidationError, AssertionError, ValueError)):
            validate(wrong, VERSIONS[-1])


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_goes_with_the_base_alone(component: str, tmp_path: Path, production: list[Object]) -> None:
    overlay = tmp_path / "deploy" / "mine"
    shutil.copytree(FOLDER, overlay.parent / "kubernetes")
    overlay.mkdir()
    parts = {"resources": ["../kubernetes/base"], "components": [f"../kubernetes/components/{component}"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    found = {(item["kind"], name_of(item)) for item in render(overlay)}
    base = {(item["kind"], name_of(item)) for item in render(FOLDER / "base")}
    everything = {(item["kind"], name_of(item)) for item in production}
    assert base < found <= everything


def test_no_pod_has_rights(pods: list[Pod]) -> None:
    for pod in pods:
        assert pod.spec["automountServiceAccountToken"] is False, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec), pod.owner
        assert pod.spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }, pod.owner
        for container in pod.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, pod.owner
        assert not [volume for volume in pod.spec["volumes"] if "hostPath" in volume], pod.owner


def test_our_user_is_that_of_the_image() -> None:
    assert f"USER {USER}:{USER}\n" in (ROOT / "Dockerfile").read_text()


def test_every_container_asks_for_what_it_may_have_of_memory_and_of_the_disk_of_its_node(pods: list[Pod]) -> None:
    for pod in pods:
        scratch = sum(
            count_bytes(volume["emptyDir"]["sizeLimit"]) for volume in pod.spec["volumes"] if "emptyDir" in volume
        )
        for container in pod.containers:
            requests, limits = (container["resources"][part] for part in ("requests", "limits"))
            for resource in ("cpu", "memory", "ephemeral-storage"):
                assert {resource} <= set(requests) & set(limits), (pod.owner, resource)
            for resource in ("memory", "ephemeral-storage"):
                assert count_bytes(requests[resource]) <= count_bytes(limits[resource]), pod.owner
            # Temporary folders count, and so do logs.
            assert count_bytes(limits["ephemeral-storage"]) > scratch, pod.owner


def test_images_of_others_are_named_by_digest_and_ours_by_the_base(pods: list[Pod]) -> None:
    for pod in pods:
        for container in pod.containers:
            ours = re.search(r"datalens-service-(api|worker-cpu|worker-cuda)\b", container["image"])
            assert ours or re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", container["image"]), pod.owner


def test_every_variable_is_a_setting_and_every_secret_a_file_that_is_there(
    pods: list[Pod], production: list[Object]
) -> None:
    maps = {name: item["data"] for name, item in of_kind(production, "ConfigMap").items()}
    for pod in pods:
        files = {
            f"{mount['mountPath']}/{item['path']}"
            for container in pod.containers
            for mount in container["volumeMounts"]
            for volume in pod.spec["volumes"]
            if volume["name"] == mount["name"] and "secret" in volume
            for item in volume["secret"]["items"]
        }
        used = set()
        for container in pod.containers:
            shared = [maps[source["configMapRef"]["name"]] for source in container.get("envFrom", [])]
            found = {name: value for one in [*shared, variables(container)] for name, value in one.items()}
            named = {name for name in found if name.startswith(PREFIX)}
            secret = {name for name in named if name.removesuffix("_FILE") in SECRETS}
            assert named <= SETTINGS | secret, pod.owner
            assert all(name.endswith("_FILE") for name in secret), pod.owner
            assert set(found) - named <= RANKS | BACKUP | {name for name in found if name.startswith("BACKUP_")}
            used |= {found[name] for name in secret} | {
                value for name, value in found.items() if name == "PGSERVICEFILE"
            }
            assert not [one for one in container.get("env", []) if "secretKeyRef" in one.get("valueFrom", {})], (
                pod.owner
            )
        assert files == used, pod.owner
        assert files or pod.owner == "datalens-weights"


def test_the_values_of_settings_can_be_used(pods: list[Pod], production: list[Object]) -> None:
    shared = of_kind(production, "ConfigMap")["datalens-settings"]["data"]
    for pod in pods:
        for container in pod.containers:
            values = shared | {name: value for name, value in variables(container).items() if name in SETTINGS}
            fields = {name.removeprefix(PREFIX).lower(): value for name, value in values.items()}
            assert Settings(**fields, broker_url="redis://localhost:6379/0").executor == "celery"


def test_whatever_an_object_names_is_there(pods: list[Pod], production: list[Object], examples: list[Object]) -> None:
    claims, maps = set(of_kind(production, "PersistentVolumeClaim")), set(of_kind(production, "ConfigMap"))
    for pod in pods:
        assert pod.spec["serviceAccountName"] in of_kind(production, "ServiceAccount")
        for volume in pod.spec["volumes"]:
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "datalens-data") in claims
            assert volume.get("configMap", {}).get("name", "datalens-settings") in maps
        for container in pod.containers:
            assert {mount["name"] for mount in container["volumeMounts"]} == {
                one["name"] for one in pod.spec["volumes"]
            }
    for item in production + examples:
        for selector in find_selectors(item):
            assert any(matches(selector, pod.labels) for pod in pods), (item["kind"], selector)


def find_selectors(item: Object) -> Iterator[Object]:
    """Every selector of pods that an object has."""
    spec = item.get("spec", {})
    if item["kind"] == "Service":
        yield {"matchLabels": spec["selector"]}
    elif item["kind"] == "NetworkPolicy":
        yield spec["podSelector"]
    elif item["kind"] in ("Deployment", "PodDisruptionBudget"):
        yield spec["selector"]


def matches(selector: Object, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


def test_a_network_policy_holds_for_every_pod(
    pods: list[Pod], production: list[Object], examples: list[Object]
) -> None:
    policies = [item["spec"]["podSelector"] for item in production + examples if item["kind"] == "NetworkPolicy"]
    for pod in pods:
        assert any(matches(selector, pod.labels) for selector in policies), pod.owner


def test_workers_serve_their_kind_of_device(pods: list[Pod]) -> None:
    found = {pod.owner: pod for pod in pods if pod.owner in QUEUES}
    assert set(found) == set(QUEUES)
    for name, queue in QUEUES.items():
        [only] = found[name].containers
        program, application, module, subcommand, *options = only["command"]
        assert (program, application, module, subcommand) == (
            "celery",
            "-A",
            "datalens_service.workers.app",
            worker.name,
        )
        _, rest, _ = worker.make_parser(click.Context(worker)).parse_args(options)
        assert rest == []
        assert variables(only)["DATALENS_QUEUE"] == queue
        assert ("nvidia.com/gpu" in only["resources"]["limits"]) == (queue == "gpu")


def test_a_pod_is_killed_later_than_it_may_take_to_end(pods: list[Pod], production: list[Object]) -> None:
    shared = of_kind(production, "ConfigMap")["datalens-settings"]["data"]
    drain = int(shared.get("DATALENS_DRAIN_SECONDS", Settings.model_fields["drain_seconds"].default))
    component = "app.kubernetes.io/component"
    needed = {
        "api": drain + CLOSING_SECONDS,
        "worker-cpu": GRACE_SECONDS,
        "worker-gpu": GRACE_SECONDS,
        "ranks": GRACE_SECONDS,
    }
    for pod in pods:
        if (seconds := needed.get(pod.labels[component])) is not None:
            [only] = pod.containers
            before = only.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            assert pod.spec["terminationGracePeriodSeconds"] > before + seconds, pod.owner
            # Only a pod that others send requests to has to wait until they have heard of its end.
            assert (before >= 5) == (pod.labels[component] == "api")


def test_probes_ask_what_is_there(pods: list[Pod], tmp_path: Path) -> None:
    paths = create_app(Settings(data_dir=tmp_path)).openapi()["paths"]
    probed = set()
    for pod in pods:
        for container in pod.containers:
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if (probe := container.get(kind)) is None:
                    continue
                probed.add(pod.owner)
                if "httpGet" in probe:
                    assert probe["httpGet"]["path"] in paths
                    assert probe["httpGet"]["port"] in {port["name"] for port in container["ports"]}
                else:
                    program, option, module, *rest = probe["exec"]["command"]
                    assert (program, option) == ("python", "-m")
                    assert importlib.util.find_spec(module)
                    assert rest == (["--ready"] if kind == "readinessProbe" else [])
                    alive = container["livenessProbe"]
                    assert alive["periodSeconds"] * alive["failureThreshold"] < ALIVE_SECONDS
    assert probed == {"datalens-api", *QUEUES}


def test_the_ingress_leads_to_the_api_under_the_public_address(production: list[Object]) -> None:
    [ingress] = of_kind(production, "Ingress").values()
    [rule], [tls] = ingress["spec"]["rules"], ingress["spec"]["tls"]
    public = of_kind(production, "ConfigMap")["datalens-settings"]["data"]["DATALENS_PUBLIC_URL"]
    assert public == f"https://{rule['host']}"
    assert tls["hosts"] == [rule["host"]]
    [path] = rule["http"]["paths"]
    service = of_kind(production, "Service")[path["backend"]["service"]["name"]]
    assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}


def test_another_host_is_named_once(tmp_path: Path) -> None:
    overlay = tmp_path / "kubernetes" / "production"
    shutil.copytree(FOLDER, overlay.parent)
    written = overlay / "kustomization.yaml"
    written.write_text(written.read_text().replace("https://datalens.example.org", "https://images.hospital.test"))
    [ingress] = of_kind(render(overlay), "Ingress").values()
    assert ingress["spec"]["rules"][0]["host"] == ingress["spec"]["tls"][0]["hosts"][0] == "images.hospital.test"


def test_prometheus_finds_the_api_under_the_job_of_the_rules(production: list[Object], tmp_path: Path) -> None:
    [monitor] = of_kind(production, "ServiceMonitor").values()
    service = of_kind(production, "Service")["datalens-api"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert matches(monitor["spec"]["selector"], service["metadata"]["labels"])
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] in create_app(Settings(data_dir=tmp_path)).openapi()["paths"]
    job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    assert set(re.findall(r'job="(\w+)"', RULES.read_text())) == {job}


def test_the_rules_are_those_of_prometheus(production: list[Object], tmp_path: Path) -> None:
    [rule] = of_kind(production, "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "prometheus-rule", tmp_path / "scripts")
    copy = tmp_path / RULES.relative_to(ROOT)
    copy.unlink()
    subprocess.run([str(tmp_path / "scripts" / "prometheus-rule")], check=True)
    assert copy.read_text() == RULES.read_text(), "run scripts/prometheus-rule"
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(rule["spec"]))
    done = subprocess.run([find_program("promtool"), "check", "rules", str(rules)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_are_made_as_the_page_says(production: list[Object], pods: list[Pod], tmp_path: Path) -> None:
    """Each command of the page that makes a secret, without a cluster; together they make all that is named."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    commands = re.findall(r"^ *kubectl (?:--namespace datalens )?create secret (?:.*\\\n)*.*$", page, re.MULTILINE)
    for name in ("pg_service.conf", "database-url", "broker-url", "metrics-key"):
        (tmp_path / name).write_text("secret")
    made = {}
    for command in commands:
        typed = command.replace("kubectl", find_program("kubectl"), 1) + " --dry-run=client --output yaml"
        done = subprocess.run(["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        secret = yaml.safe_load(done.stdout)
        made[name_of(secret)] = set(secret["data"])
    wanted = {
        volume["secret"]["secretName"]: {item["key"] for item in volume["secret"]["items"]}
        for pod in sorted(pods, key=lambda pod: pod.owner == "datalens-api")
        for volume in pod.spec["volumes"]
        if "secret" in volume
    }
    [monitor] = of_kind(production, "ServiceMonitor").values()
    key = monitor["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert made == wanted | {key["name"]: {key["key"]}}


def test_the_autoscaler_counts_the_jobs_of_its_queue(database: Database, pods: list[Pod]) -> None:
    scaled = of_kind(read("keda.yaml"), "ScaledObject")["datalens-worker-gpu"]
    assert scaled["spec"]["scaleTargetRef"]["name"] in {pod.owner for pod in pods}
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] in {name_of(item) for item in read("keda.yaml")}
    dataset = new_dataset(database)
    for queue in ("gpu", "gpu", "cpu"):
        new_job(database, dataset.id, 1, queue=queue)
    claimed(database, new_job(database, dataset.id, 1, queue="gpu").id)
    with database.connection() as connection:
        assert connection.scalar(text(trigger["metadata"]["query"])) == 3
