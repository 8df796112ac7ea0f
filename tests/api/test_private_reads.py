"""Every route that reads private records, or shows what depends on them, is in the registry behind the report.

All routes are asked for, pages included, by the owner. A read is noticed by what the process opens below the folder of
records or of files for the owner alone, and by canaries: numbers and names in the answer that only private images
have. The same requests by an operator and a consumer show nothing of what is for the owner.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import CONFIRMED, claimed, found_by_attacks, npz, one_of_everything, routes
from starlette.testclient import TestClient
from test_isolation import call, operations

from datalens_service.api.deps import Services
from datalens_service.api.security.permissions import RULES, find_rule
from datalens_service.report.private_reads import PRIVATE_READS
from datalens_service.store.access import keys
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import SCOPES, Role
from datalens_service.store.jobs import audits, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import IntakeRow

AUDIENCES = {read.access: read.audience for read in PRIVATE_READS}
REGISTERED = {name for name, rule in RULES.items() if rule.shows}
FOR_OWNERS = {name for name in REGISTERED if "owner" in map(AUDIENCES.get, RULES[name].shows)}
COUNT = 918_273_645
METHODS = ("options", "get", "post", "put", "patch", "delete", "head")
_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | bytes | Path):
        _opened.append(arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0]))


# An audit hook cannot be removed; it does nothing outside of `watching`.
sys.addaudithook(_note)


@contextmanager
def watching() -> Iterator[list[str]]:
    """Paths that any thread of this process opens meanwhile."""
    global _opened
    _opened = paths = []
    try:
        yield paths
    finally:
        _opened = None


@dataclass
class House:
    """A service with one of everything, and what must not be shown."""

    ids: dict[str, str]
    private_paths: tuple[str, ...]
    canaries: tuple[str, ...]

    def touched(self, opened: list[str], text: str) -> bool:
        return any(path in name for name in opened for path in self.private_paths) or any(
            canary in text for canary in self.canaries
        )


@pytest.fixture
def house(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> House:
    ids = one_of_everything(client, services, dataset_id, tmp_path)
    lease = claimed(services, ids["audit_id"])
    audits.store_result(services.database, lease, found_by_attacks(COUNT), str(COUNT).encode())
    leases.finish(services.database, lease, JobState.SUCCEEDED)
    with services.database.transaction() as session:
        row = session.get_one(IntakeRow, dataset_id)
        row.report = {"counts": {"train": COUNT, "test": 0, "classes": {"0": COUNT}, "duplicates": COUNT}}
    made = [
        artifact
        for job_id in (ids["job_id"], ids["classifier_id"].replace("clf_", "job_"))
        for artifact in services.artifacts.list_artifacts(job_id)
    ]
    private = [one for one in made if not one.releasable]
    assert private
    paths = (str(services.settings.data_dir / "datasets"), *(str(one.path) for one in private))
    canaries = (str(COUNT), f"{COUNT:,}", *(one.sha256 for one in private))
    return House(ids, paths, canaries)


def pages(client: TestClient) -> dict[str, tuple[str, str]]:
    """Routes that are not in the description: method and path by operation id."""
    found = [route for route in routes(client.app) if not route.include_in_schema]
    return {route.operation_id or route.name: (min(route.methods).lower(), route.path) for route in found}


def asked(client: TestClient, name: str, path: str, method: str, ids: dict[str, str]) -> str:
    """The text of the answer, where it is one."""
    if name in operations():
        return str(call(client, name, ids).text)
    ids = {**dict.fromkeys(("slug", "granted", "name"), "none"), **ids}
    return str(client.request(method, path.format_map(ids)).text)


def reading(client: TestClient, house: House, owner_artifact: str) -> set[str]:
    """Operations with which this caller reads private records, or sees what depends on them."""
    found = set()
    asked_for = {**{name: one[:2] for name, one in operations().items()}, **pages(client)}
    for name, (method, path) in sorted(asked_for.items(), key=lambda one: METHODS.index(one[1][0])):
        # The way out would end the session of the pages.
        if name == "sign_out":
            continue
        with watching() as opened:
            text = asked(client, name, path, method, {**house.ids, "name": owner_artifact})
        if house.touched(opened, text):
            found.add(name)
    return found


def browser(client: TestClient, services: Services, role: Role) -> TestClient:
    """Signed in for the pages, with a key for the API."""
    _, plain = keys.create(services.database, KeyRequest("visitor", role=role))
    other = TestClient(client.app, base_url="http://service", headers={"Authorization": f"Bearer {plain}"})
    other.post("/sign-in", data={"key": plain}, follow_redirects=False)
    return other


def test_every_route_that_reads_private_records_is_registered(
    client: TestClient, services: Services, house: House
) -> None:
    found = reading(browser(client, services, Role.OWNER), house, "report.json")
    assert found - REGISTERED == set(), (
        "say in permissions.py what it shows; evaluation/private_reads.py says who sees it"
    )
    # It does notice them.
    assert {"getDatasetPreview", "getDatasetValidation", "createDataset", "getJobReport", "getJobArtifact"} <= found
    assert {"getAudit", "getAuditPicture"} <= found
    assert "listJobArtifacts" in found


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.CONSUMER])
def test_what_is_for_the_owner_is_shown_to_nobody_else(
    client: TestClient, services: Services, house: House, role: Role
) -> None:
    assert reading(browser(client, services, role), house, "report.json") == set()


def test_registered_operations_exist(client: TestClient) -> None:
    known = {route.operation_id for route in routes(client.app)}
    assert known >= REGISTERED
    assert {access for name in REGISTERED for access in RULES[name].shows} <= set(AUDIENCES)


def test_what_shows_records_alone_needs_a_scope_that_owners_alone_have() -> None:
    shown = {"createDataset", "createDatasetFromUpload", "getDatasetValidation", "getDatasetPreview", "getAuditPicture"}
    assert shown <= FOR_OWNERS
    for name in shown:
        assert find_rule(name).scope not in SCOPES[Role.OPERATOR] | SCOPES[Role.CONSUMER]


def test_a_page_that_embeds_a_private_address_is_registered(
    client: TestClient, services: Services, house: House
) -> None:
    addresses = [
        operations()[name][1].format_map({**house.ids, "name": "report.json"})
        for name in ("getDatasetValidation", "getDatasetPreview", "getAuditPicture")
    ]
    visitor = browser(client, services, Role.OWNER)
    embedding = {
        name
        for name, (method, path) in pages(client).items()
        if method == "get" and name.startswith("show")
        if any(one in asked(visitor, name, path, method, house.ids) for one in addresses)
    }
    assert embedding == {"showDataset", "showJob", "showAudit"}
    assert embedding <= FOR_OWNERS
    other = browser(client, services, Role.OPERATOR)
    assert not any(one in other.get(f"/datasets/{house.ids['dataset_id']}").text for one in addresses)


@pytest.mark.parametrize(("role", "sees"), [(Role.OWNER, True), (Role.OPERATOR, False)])
def test_the_page_of_a_classifier_reads_the_owners_report_for_the_owner_alone(
    client: TestClient, services: Services, house: House, role: Role, sees: bool
) -> None:
    job_id = house.ids["classifier_id"].replace("clf_", "job_")
    visitor = browser(client, services, role)
    with watching() as opened:
        text = visitor.get(f"/jobs/{job_id}").text
    assert house.touched(opened, text) is sees
    assert ("719283645" in text) is sees
    assert "showJob" in FOR_OWNERS


def test_links_between_uploads_are_shown_where_the_registry_says(
    client: TestClient, services: Services, house: House
) -> None:
    """Another upload with one of the same records: its id is told by some operations about the first."""
    images = np.random.default_rng(7).integers(0, 256, (200, 8, 8), dtype=np.uint8)
    records = services.settings.data_dir / "datasets" / house.ids["dataset_id"]
    images[0] = np.load(records / "train_images.npy")[0, ..., 0]
    second = client.post("/v1/datasets", files={"file": npz(images=images)}, data=CONFIRMED)
    assert second.status_code == 201, second.text
    linked = House(house.ids, (), (second.json()["id"],))
    about = {
        name
        for name in reading(browser(client, services, Role.OWNER), linked, "report.json")
        if "{dataset_id}" in (operations().get(name) or pages(client)[name])[1]
    }
    assert {"getDatasetPrivacy", "showDataset"} <= about
    assert all("recognising records that come again" in RULES[name].shows for name in about)
