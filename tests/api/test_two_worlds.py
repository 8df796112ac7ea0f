"""Two worlds that differ in one fact: whether two uploads share a record. Nobody but the owner can tell them apart.

Ids, clock and noise are the same in both. On the data set that stays the same a job makes its releases; the other data
set holds one of its records, or does not. Every file that may be passed on and every answer to a consumer is compared
byte by byte.
"""

import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import another_caller, arrays, bearer, claimed, description, npz, send_images, training, work_off
from starlette.testclient import TestClient

from child_programs import in_this_process
from datalens_service.api.application import create_app
from datalens_service.api.security.permissions import RULES
from datalens_service.base.settings import Settings
from datalens_service.data.export import WRITERS
from datalens_service.proof.proof_verification import verify
from datalens_service.store.access import keys
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import SCOPES, Role
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger import ledger
from worlds import freeze

IMAGES = 40
QUICK = {
    "synthetic_images": IMAGES,
    "method": {"name": "moments", "subspace_dimensions": 4},
    "evaluation": {"enabled": False},
}

OF_THE_MOMENT = {"last-modified", "ratelimit", "ratelimit-policy"}
OF_A_CONSUMER = {name for name, rule in RULES.items() if rule.scope in SCOPES[Role.CONSUMER]}


@dataclass
class World:
    """What somebody may see of a service on which a job has succeeded.

    Attributes:
        files: Of the job, releasable ones, by name.
        answers: To a consumer: status, headers and body by address.
        private: What the owner sees, by address; differs.
        operator: The data sets as an operator sees them.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    private: dict[str, Any] = field(default_factory=dict)
    operator: list[dict[str, Any]] = field(default_factory=list)


def upload(client: TestClient, images: np.ndarray) -> str:
    reply = send_images(client, npz(images=images))
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def two_uploads(client: TestClient, *, shared: bool, first: bool) -> tuple[str, str]:
    """Ids of the data set that is the same in all worlds and of the other one; `first` says which came first."""
    same, other = arrays(1)["images"], arrays(2)["images"]
    if shared:
        other = np.concatenate([same[:1], other[1:]])
    ids = [upload(client, images) for images in ((same, other) if first else (other, same))]
    return (ids[0], ids[1]) if first else (ids[1], ids[0])


def spend(client: TestClient, dataset_id: str) -> None:
    """A job on the other data set that paid for a release and failed."""
    database = client.app.state.services.database
    job = client.post("/v1/jobs", json=training(dataset_id, epsilon=1.5)).json()
    lease = claimed(client.app.state.services, job["id"])
    with database.transaction() as session:
        ledger.charge(session, job["id"], lease.token, 0, "moments.norms", job["cost"]["units"] // 2)
    leases.finish(database, lease, JobState.FAILED, {"type": "internal-error"})


def train(client: TestClient, dataset_id: str, spec: dict[str, Any]) -> str:
    services = client.app.state.services
    reply = client.post("/v1/jobs", json=training(dataset_id, **spec))
    assert reply.status_code == 202, reply.text
    job_id = str(reply.json()["id"])
    ended = work_off(services, job_id)
    assert ended.state == JobState.SUCCEEDED, ended.error
    return job_id


def key_of(client: TestClient, role: Role) -> TestClient:
    return another_caller(client, KeyRequest(role.value, role=role))


def addresses(client: TestClient, ids: dict[str, str]) -> Iterator[str]:
    """Everything that a consumer may ask for, and each file by its name."""
    # No job of these worlds makes a classifier.
    elsewhere = {"{name}", "{classifier_id}"}
    for path, methods in description()["paths"].items():
        if methods.get("get", {}).get("operationId") in OF_A_CONSUMER and not elsewhere & set(path.split("/")):
            yield path.format_map(ids)
    job = f"/v1/jobs/{ids['job_id']}"
    yield from (f"{job}/artifacts/{name}" for name in ("privacy.json", "account-proof.json", "report.json"))
    yield from (f"{job}/report?audience=releasable&format={form}" for form in ("json", "html"))
    yield from (f"{job}/{what}?format={form}" for what in ("synthetic", "dataset") for form in WRITERS)
    yield from (f"/v1/datasets/{ids['dataset_id']}{part}" for part in ("", "/privacy", "/privacy/entries"))


def asked(client: TestClient, address: str) -> tuple[int, dict[str, str], bytes]:
    reply = client.get(address)
    headers = {name: value for name, value in reply.headers.items() if name not in OF_THE_MOMENT}
    return reply.status_code, headers, reply.content


def page_of_releases(client: TestClient) -> tuple[int, dict[str, str], bytes]:
    """As a consumer sees it; what belongs to the session is left out."""
    _, plain = keys.create(client.app.state.services.database, KeyRequest("browser", role=Role.CONSUMER))
    browser = TestClient(client.app, base_url="http://service")
    shown = browser.post("/sign-in", data={"key": plain})
    assert (shown.status_code, shown.url.path) == (200, "/releases")
    return 200, {}, re.sub(rb'<meta name="[a-z-]*" content="[\w-]{43}">', b"", shown.content)


def shared(client: TestClient, release_id: str) -> dict[str, tuple[int, dict[str, str], bytes]]:
    """What a partner gets by a link, whose secret is left out."""
    made = client.post(f"/v1/releases/{release_id}/links", json={"partner": "a clinic"}).json()
    nobody, secret = TestClient(client.app, base_url="http://service"), made["url"].encode()
    answers = {part: asked(nobody, f"{made['url']}{part}") for part in ("", "/archive", "/images?format=npz")}
    return {
        f"shared{part}": (code, headers, body.replace(secret, b"")) for part, (code, headers, body) in answers.items()
    }


def look(client: TestClient, dataset_id: str, other_id: str, job_id: str) -> World:
    services, world = client.app.state.services, World()
    release_id = job_id.replace("job_", "gen_")
    ids = {"job_id": job_id, "generator_id": release_id, "release_id": release_id, "dataset_id": dataset_id}
    for file in services.artifacts.list_artifacts(job_id):
        if file.releasable:
            world.files[file.name] = file.path.read_bytes()
    consumer = key_of(client, Role.CONSUMER)
    for address in addresses(client, ids):
        world.answers[address] = asked(consumer, address)
    world.answers["/releases"] = page_of_releases(client)
    world.answers |= shared(client, release_id)
    for part in ("", "/privacy", "/validation"):
        world.private[part] = [client.get(f"/v1/datasets/{one}{part}").json() for one in (dataset_id, other_id)]
    world.private["proof"] = client.get(f"/v1/jobs/{job_id}/artifacts/account-proof.json").content
    world.private["report"] = client.get(f"/v1/jobs/{job_id}/report").json()
    operator = key_of(client, Role.OPERATOR)
    world.operator = [operator.get(f"/v1/datasets/{one}").json() for one in (dataset_id, other_id)]
    return world


@pytest.fixture(scope="module", params=["first", "second"])
def worlds(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[World, World]:
    """One where the uploads share a record, one where they do not."""

    def world(*, shared: bool) -> World:
        folder = tmp_path_factory.mktemp("world")
        shutil.copy(sqlite_template, folder)
        with pytest.MonkeyPatch.context() as patch, in_this_process():
            freeze(patch)
            with TestClient(create_app(Settings(data_dir=folder)), base_url="http://service") as client:
                client.headers.update(bearer(client, "owner"))
                same, other = two_uploads(client, shared=shared, first=request.param == "first")
                spend(client, other)
                job_id = train(client, same, QUICK)
                return look(client, same, other, job_id)

    return world(shared=True), world(shared=False)


def test_the_owner_can_tell_them_apart(worlds: tuple[World, World]) -> None:
    linked, apart = worlds
    assert [bool(one["linked_datasets"]) for one in linked.private["/privacy"]] == [True, True]
    assert [bool(one["linked_datasets"]) for one in apart.private["/privacy"]] == [False, False]
    assert linked.private["proof"] != apart.private["proof"]
    assert linked.private["report"]["privacy"]["lifetime"] != apart.private["report"]["privacy"]["lifetime"]


def test_every_file_that_may_be_passed_on_is_the_same(worlds: tuple[World, World]) -> None:
    linked, apart = worlds
    assert {"privacy.json", "card.json", "report-releasable.json", "report-releasable.html"} < set(linked.files)
    assert linked.files.keys() == apart.files.keys()
    assert [name for name in linked.files if linked.files[name] != apart.files[name]] == []
    assert verify(linked.files["privacy.json"]).holds


def test_every_answer_to_a_consumer_is_the_same(worlds: tuple[World, World]) -> None:
    linked, apart = worlds
    assert linked.answers.keys() == apart.answers.keys()
    assert sum(status == 200 for status, _, _ in linked.answers.values()) > 20
    assert [address for address in linked.answers if linked.answers[address] != apart.answers[address]] == []


def test_an_archive_of_a_release_holds_the_proof(worlds: tuple[World, World]) -> None:
    for world in worlds:
        archives = [body for address, (_, _, body) in world.answers.items() if "/dataset?format=" in address]
        assert len(archives) == len(WRITERS)
        for body in archives:
            with zipfile.ZipFile(io.BytesIO(body)) as archive:
                assert archive.read("privacy.json") == world.files["privacy.json"]


def test_an_upload_says_which_account_it_joins_to_its_owner_alone(worlds: tuple[World, World]) -> None:
    linked, apart = worlds
    for part in ("", "/validation"):
        told = [one["joined"] for one in linked.private[part] if one["joined"]]
        assert len(told) == 1, "the second upload"
        assert told[0]["known_records"] == 1
        assert (told[0]["epsilon"], told[0]["epsilon_spent"], told[0]["epsilon_remaining"]) == (10, 0, 10)
        assert told[0]["dataset_ids"][0] in {one["id"] for one in linked.private[""]}
        assert [one["joined"] for one in apart.private[part]] == [None, None]
    assert [one["joined"] for one in linked.operator] == [None, None]
