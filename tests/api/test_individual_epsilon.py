"""Individual ε over REST: the same answer in two worlds that differ in the record, and no trace of the question."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import NUM_CLASSES, SIDE, a_classifier, arrays, bearer, npz, npz_of, send_images, training
from PIL import Image
from starlette.testclient import TestClient
from test_two_worlds import freeze, train, upload

from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.mechanisms import GradientSum
from datalens_service.store.datasets import datasets
from tests.data.builders import encoded

METHOD = {
    "name": "dp_sgd", "architecture": "linear", "steps": 5, "clip_norm": 30.0, "learning_rate": 0.01,
    "accounting": "per_instance",
}  # fmt: skip
SPEC = {"method": METHOD, "epsilon": 4.0, "evaluation": {"enabled": False}}
IN_ONE, IN_NONE = arrays()["images"][0], arrays(7)["images"][0]


def asked(client: TestClient, job_id: str, image: np.ndarray, label: int = 0) -> bytes:
    body = {"image": image.tolist(), "label": label}
    reply = client.post(f"/v1/jobs/{job_id}/individual-epsilon:from-pixels", json=body)
    # Where earlier clients send it.
    assert client.post(f"/v1/jobs/{job_id}/individual-epsilon", json=body).content == reply.content
    assert reply.status_code == 200, reply.text
    assert "no-store" in reply.headers["cache-control"]
    return reply.content


@pytest.fixture(scope="module")
def worlds(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[tuple[TestClient, str], tuple[TestClient, str]]]:
    """One whose data set has a record, one with another in its place; the releases came out the same.

    The same seeded noise alone would hand out other sums. So no record adds anything: whatever differs afterwards
    was looked up in the records.
    """

    def world(images: np.ndarray) -> tuple[TestClient, str]:
        folder = tmp_path_factory.mktemp("world")
        shutil.copy(sqlite_template, folder)
        client = TestClient(create_app(Settings(data_dir=folder)), base_url="http://service")
        client.__enter__()
        client.headers.update(bearer(client, "owner"))
        return client, train(client, upload(client, images), SPEC)

    others = arrays()["images"].copy()
    others[0] = arrays(3)["images"][0]
    made = []
    for images in (arrays()["images"], others):
        with pytest.MonkeyPatch.context() as patch:
            freeze(patch)
            patch.setattr(GradientSum, "exact_sum", lambda self, rows: np.zeros(self.dimensions, np.int64))
            made.append(world(images))
    yield made[0], made[1]
    for client, _ in made:
        client.__exit__(None, None, None)


@pytest.fixture
def job(worlds: Any) -> tuple[TestClient, str]:
    """A client and the job, in the first world."""
    made: tuple[TestClient, str] = worlds[0]
    return made


def test_answers_are_the_same_whether_or_not_the_record_is_in_the_data_set(worlds: Any) -> None:
    (with_it, first), (without_it, second) = worlds
    for image in (IN_ONE, IN_NONE):
        assert asked(with_it, first, image) == asked(without_it, second, image)
    assert asked(with_it, first, IN_ONE) != asked(with_it, first, IN_NONE), "each has its own"


def test_an_individual_epsilon_is_realised_and_at_most_that_of_the_job(job: tuple[TestClient, str]) -> None:
    client, job_id = job
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["cost"]["kept_bytes"] == 5 * NUM_CLASSES * (SIDE * SIDE + 1) * 4
    answer = json.loads(asked(client, job_id, IN_ONE))
    assert 0 < answer["epsilon"] <= answer["epsilon_of_job"] == job["cost"]["epsilon_at_plan"]
    assert (answer["steps"], answer["delta"]) == (5, job["cost"]["delta"])
    assert "no guarantee" in answer["meaning"]


def test_every_way_to_send_a_record_gives_the_same_answer(job: tuple[TestClient, str]) -> None:
    client, job_id = job
    expected = asked(client, job_id, IN_ONE, 2)
    for content in (encoded(Image.fromarray(IN_ONE)), npz_of(images=IN_ONE[None])):
        reply = client.post(f"/v1/jobs/{job_id}/individual-epsilon", files={"file": content}, data={"label": "2"})
        assert (reply.status_code, reply.content) == (200, expected), reply.text


PNG = encoded(Image.fromarray(IN_ONE))


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        *(({"files": {"file": PNG}, "data": {"label": label}}, "label") for label in ("-1", "x")),
        ({"files": {"file": PNG}, "data": {"label": "4"}}, "from 0 to 3"),
        ({"files": {"file": PNG}}, "label"),
        ({"files": {"file": npz()}, "data": {"label": "0"}}, "image"),
        *(({"json": {"image": image, "label": 0}}, "") for image in ([], [[]], [[1, 2], [3]], [[0] * 9] * 9)),
    ],
)
def test_what_is_no_record_of_the_data_set_is_refused(
    job: tuple[TestClient, str], request_: dict[str, Any], word: str
) -> None:
    client, job_id = job
    reply = client.post(f"/v1/jobs/{job_id}/individual-epsilon", **request_)
    assert reply.status_code == 422, reply.text
    assert word in reply.text


def test_a_job_that_kept_no_iterates_says_how_to_have_them(client: TestClient, services: Any, dataset_id: str) -> None:
    job = a_classifier(client, services, dataset_id)
    reply = client.post(f"/v1/jobs/{job}/individual-epsilon:from-pixels", json={"image": IN_ONE.tolist(), "label": 0})
    assert reply.status_code == 409
    assert "per_instance" in reply.json()["detail"]


def test_units_of_several_records_have_no_epsilon_of_one_record(client: TestClient) -> None:
    groups = np.repeat(np.arange(100), 2)
    reply = send_images(client, npz(groups=groups), records_per_unit="2", classes_per_unit="2")
    assert reply.status_code == 201, reply.text
    job = train(client, reply.json()["id"], SPEC)
    refused = client.post(f"/v1/jobs/{job}/individual-epsilon:from-pixels", json={"image": IN_ONE.tolist(), "label": 0})
    assert refused.status_code == 409, refused.text
    assert "several records" in refused.json()["detail"]


def test_neither_image_nor_answer_leaves_a_trace(
    job: tuple[TestClient, str], capfd: pytest.CaptureFixture[str]
) -> None:
    client, job_id = job
    services = client.app.state.services
    seen: list[Callable[[], Any]] = [
        lambda: client.get(f"/v1/jobs/{job_id}").json(),
        lambda: client.get("/v1/jobs").json(),
        lambda: client.get(f"/v1/jobs/{job_id}/artifacts").json(),
        lambda: client.get(f"/v1/jobs/{job_id}/report").json(),
    ]
    before = [look() for look in seen]
    epsilon = json.loads(asked(client, job_id, IN_ONE))["epsilon"]
    assert [look() for look in seen] == before
    entries = client.get("/v1/audit").json()["items"]
    for text in ("".join(capfd.readouterr()), json.dumps(entries), json.dumps(before)):
        assert str(epsilon) not in text
    for folder in ("predictions", "incoming"):
        left = list((services.settings.data_dir / folder).glob("*"))
        # The lock of the folder stays, and is empty.
        assert [(path.name, path.stat().st_size) for path in left] in ([], [(".lock", 0)])


def test_the_archive_of_the_classifier_leaves_iterates_out(job: tuple[TestClient, str]) -> None:
    client, job_id = job
    names = {item["name"]: item["audience"] for item in client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]}
    assert names["iterates.safetensors"] == "anyone"
    assert b"iterates.safetensors" not in client.get(f"/v1/jobs/{job_id}/classifier.zip").content


def test_a_plan_says_what_iterates_take_and_refuses_too_many(client: TestClient, dataset_id: str) -> None:
    reply = client.post("/v1/plans", json=training(dataset_id, **SPEC))
    assert reply.json()["cost"]["kept_bytes"] == 5 * NUM_CLASSES * (SIDE * SIDE + 1) * 4
    large = {**METHOD, "architecture": "mlp", "steps": 10_000}
    refused = client.post("/v1/plans", json=training(dataset_id, **{**SPEC, "method": large}))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-spec")
    assert "256 MiB" in refused.json()["detail"]


def test_the_answer_needs_no_record_of_the_data_set(worlds: Any) -> None:
    client, job_id = worlds[1]
    before, dataset_id = asked(client, job_id, IN_ONE), client.get(f"/v1/jobs/{job_id}").json()["dataset_id"]
    shutil.rmtree(datasets.get(client.app.state.services.database, dataset_id).records_path)
    assert asked(client, job_id, IN_ONE) == before
