"""SBOM and list of licences: complete, by the schema of CycloneDX, and without tools of development."""

import csv
import json
import sys
from pathlib import Path

import cyclonedx.schema
import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import inventory

SCHEMAS = Path(cyclonedx.schema.__file__).parent / "_res"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inventory")
    assert inventory.main([str(folder)]) == 0
    return folder


def test_sbom_follows_the_schema(written: Path) -> None:
    resources = [
        (name, Resource.from_contents(json.loads((SCHEMAS / f"{name}.SNAPSHOT.schema.json").read_text())))
        for name in ("spdx", "jsf-0.82")
    ]
    registry: Registry = Registry().with_resources(
        [(f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", resource) for name, resource in resources]
    )
    schema = json.loads((SCHEMAS / "bom-1.6.SNAPSHOT.schema.json").read_text())
    Draft7Validator(schema, registry=registry).validate(json.loads((written / "sbom.json").read_text()))


def test_sbom_has_what_users_install_and_no_tools_of_development(written: Path) -> None:
    bom = json.loads((written / "sbom.json").read_text())
    names = {component["name"] for component in bom["components"]}
    assert {"fastapi", "torch", "psycopg", "celery", "numpy"} <= names
    assert not {"pytest", "ruff", "mypy", "kubernetes-validate"} & names
    assert bom["metadata"]["component"]["name"] == "datalens-service"
    edges = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    assert {component["bom-ref"] for component in bom["components"]} <= edges.keys()


def test_versions_are_those_of_the_lock(written: Path) -> None:
    lock = (Path(__file__).parents[1] / "requirements.lock").read_text()
    pinned = {line.split(" ")[0] for line in lock.splitlines() if "==" in line and not line.startswith(" ")}
    bom = json.loads((written / "sbom.json").read_text())
    stated = {f"{component['name']}=={component['version']}" for component in bom["components"]}
    assert stated <= {one.split("[")[0] + one[one.index("==") :] if "[" in one else one for one in pinned}


def test_licenses_are_listed_and_none_forbids_service(written: Path) -> None:
    rows = csv.DictReader((written / "licenses.csv").read_text().splitlines())
    licenses = {row["package"]: row["licence"] for row in rows}
    # Of NVIDIA; its packages state none.
    assert {name for name, stated in licenses.items() if stated == "not stated"} <= {"cuda-toolkit"}
    assert not [name for name, stated in licenses.items() if "AGPL" in stated or stated.startswith("GPL")]
