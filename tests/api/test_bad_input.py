"""Bad input: a 4xx problem with a stable type, a sentence that says what to change, and nothing left behind."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from api_builders import CONFIRMED, NUM_RECORDS, npz, training, zipped
from sqlalchemy import func, select
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.store.schema.tables import AccountRow, DatasetRow, JobRow, LedgerEntryRow, RecordFingerprintRow
from tests.data.builders import grey

TABLES = (AccountRow, DatasetRow, JobRow, LedgerEntryRow, RecordFingerprintRow)
# The owner's words, which no problem may repeat.
SECRET = "patient-4711"  # noqa: S105


class Case(NamedTuple):
    """What is sent, and what the problem must be."""

    name: str
    send: dict[str, Any]
    status: int
    code: str
    says: str


def pickled() -> np.ndarray:
    return np.array([{"name": SECRET}] * NUM_RECORDS, dtype=object)


def folder_zip(*sizes: tuple[int, int]) -> bytes:
    """A zip of class folders with one image of each size."""
    return zipped({f"cat/{SECRET}-{number}.png": grey(size=size) for number, size in enumerate(sizes)})


def upload(content: bytes, **fields: str) -> dict[str, Any]:
    return {"files": {"file": (f"{SECRET}.npz", content)}, "data": {**CONFIRMED, "epsilon": "10", **fields}}


UPLOADS = [
    Case("text", upload(f"{SECRET} was here".encode()), 422, "dataset-invalid", "numpy.savez_compressed"),
    Case("empty file", upload(b""), 422, "dataset-invalid", "zip"),
    Case("cut off", upload(npz()[:-200]), 422, "dataset-invalid", "upload it completely"),
    Case("zip of text", upload(folder_zip()), 422, "dataset-invalid", "no image in it"),
    Case("object array", upload(npz(images=pickled())), 422, "dataset-invalid", "Python objects"),
    Case(
        "labels are bytes", upload(npz(labels=np.array([SECRET.encode()] * 200))), 422, "dataset-invalid", "identifiers"
    ),
    Case("epsilon 0", upload(npz(), epsilon="0"), 422, "invalid-input", "greater than 0"),
    Case("epsilon negative", upload(npz(), epsilon="-1"), 422, "invalid-input", "greater than 0"),
    Case("epsilon infinite", upload(npz(), epsilon="inf"), 422, "invalid-input", "finite"),
    Case("epsilon a word", upload(npz(), epsilon=SECRET), 422, "invalid-input", "number"),
    Case("delta at 1/n", upload(npz(), delta=str(1 / NUM_RECORDS)), 422, "invalid-delta", "1/n"),
    Case("delta 0", upload(npz(), delta="0"), 422, "invalid-input", "greater than 0"),
    Case("unknown field", upload(npz(), epsilom="1"), 422, "invalid-input", "no member of this name"),
    Case("same class twice", upload(npz(), class_names="a,a,b,c"), 422, "invalid-input", "differ"),
    Case("name with NUL", upload(npz(), name="a\0b"), 422, "invalid-input", "printable"),
    Case("name of blanks", upload(npz(), name="  "), 422, "invalid-input", "at least 1"),
    Case(
        "no epsilon",
        {"files": {"file": npz()}, "data": CONFIRMED},
        422,
        "invalid-spec",
        "Set epsilon, for example to 10",
    ),
    Case("no file", {"files": {"notfile": npz()}, "data": {"epsilon": "1"}}, 422, "invalid-input", "named file"),
    Case("file is text", {"data": {"epsilon": "1"}, "files": {}}, 415, "unsupported-media-type", "multipart"),
    Case("neither form nor JSON", {"content": b"epsilon: 1"}, 415, "unsupported-media-type", "multipart"),
    Case("JSON without an upload", {"json": {"epsilon": 1}}, 422, "invalid-input", "upload_id"),
    Case(
        "JSON that is none",
        {"content": b"{", "headers": {"Content-Type": "application/json"}},
        422,
        "invalid-input",
        "not valid JSON",
    ),
    Case("JSON of an unknown upload", {"json": {"upload_id": "upl_1"}}, 404, "not-found", "no such upload"),
    Case("too large", upload(b"PK\x03\x04" + bytes(2**20)), 413, "payload-too-large", "DATALENS_MAX_UPLOAD_BYTES"),
    Case("two files", {"files": [("file", npz()), ("file", npz())]}, 422, "invalid-input", "twice"),
    Case(
        "names that are long together",
        {
            "content": b"".join(
                b'--x\r\nContent-Disposition: form-data; name="%0200d"\r\n\r\n\r\n' % n for n in range(2000)
            ),
            "headers": {"Content-Type": "multipart/form-data; boundary=x"},
        },
        422,
        "invalid-input",
        "longer than 262144 bytes",
    ),
    Case("long text", upload(npz(), name="x" * 2**19), 422, "invalid-input", "longer than 262144 bytes"),
    Case(
        "broken form",
        {"content": b"--x\r\ngarbage", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        422,
        "invalid-input",
        "malformed",
    ),
    Case(
        "cut-off form",
        {
            "content": b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nPK',
            "headers": {"Content-Type": "multipart/form-data; boundary=x"},
        },
        422,
        "invalid-input",
        "cut off",
    ),
]

DATALENS = {"name": "datalens", "num_teachers": 20, "top_k": 8}

REQUESTS = [
    Case("epsilon 0", {"epsilon": 0}, 422, "invalid-input", "greater than 0"),
    Case("epsilon missing", {"epsilon": None}, 422, "invalid-input", "number"),
    Case("delta at 1/n", {"delta": 1 / NUM_RECORDS}, 422, "invalid-delta", "leave it out"),
    Case("another delta", {"delta": 1e-9}, 422, "invalid-delta", "leave it out"),
    Case("unknown field", {"sigma": 5000}, 422, "invalid-input", "no member of this name"),
    Case("unknown method", {"method": {"name": SECRET}}, 422, "invalid-input", "'moments'"),
    Case("unknown parameter", {"method": {"name": "moments", "sigma": SECRET}}, 422, "invalid-input", "no member"),
    Case("negative seed", {"seed": -1}, 422, "invalid-input", "at least 0"),
    Case("fewer units than teachers", {"method": DATALENS | {"num_teachers": 201}}, 422, "invalid-spec", "200"),
    Case("votes larger than images", {"method": DATALENS | {"top_k": 65}}, 422, "invalid-spec", "64"),
    Case(
        "epsilon for no step",
        {"epsilon": 0.01, "method": DATALENS | {"noise_stddev": 100}},
        422,
        "epsilon-infeasible",
        "raise epsilon",
    ),
    Case("budget exceeded", {"epsilon": 11}, 409, "privacy-budget-exceeded", "10 remains"),
]


def traces(services: Services) -> dict[str, Any]:
    """Everything that an upload or a request could leave behind: rows of every table, and files."""
    with services.database.session() as session:
        rows = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) for table in TABLES}
    root = services.settings.data_dir
    files = {path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
    return {**rows, "files": {path for path in files if not path.name.startswith("datalens.db")}}


def check(reply: Any, case: Case) -> None:
    assert reply.status_code == case.status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert (problem["code"], problem["type"]) == (case.code, f"/problems/{case.code}")
    assert case.says in problem["detail"]
    # File names go back to nobody but whoever sent them, in the member that says so.
    if problem.pop("bad_files", None):
        assert reply.headers["X-Datalens-Audience"] == "owner"
    assert SECRET not in json.dumps(problem)
    assert SECRET not in str(reply.headers)


def test_refused_upload_leaves_nothing(client: TestClient, services: Services) -> None:
    for case in UPLOADS:
        before = traces(services)
        check(client.post("/v1/datasets", **case.send), case)
        assert traces(services) == before
        assert before["datasets"] == 0


def test_refused_request_leaves_nothing(client: TestClient, services: Services, dataset_id: str) -> None:
    for path in ["/v1/plans", "/v1/jobs"]:
        for case in REQUESTS:
            before = traces(services)
            reply = client.post(path, json=training(dataset_id, **case.send))
            if path == "/v1/plans" and case.status == 409:
                assert reply.json()["fits"] is False
                assert reply.json()["budget_after"] is None
            else:
                check(reply, case)
            assert traces(services) == before
            assert before["jobs"] == 0


def test_second_job_that_does_not_fit(client: TestClient, services: Services, dataset_id: str) -> None:
    assert client.post("/v1/jobs", json=training(dataset_id, epsilon=8)).status_code == 202
    before = traces(services)
    reply = client.post("/v1/jobs", json=training(dataset_id, epsilon=8))
    check(reply, Case("", {}, 409, "privacy-budget-exceeded", "ask for less"))
    budget = reply.json()["budget"]
    assert budget["epsilon_limit"] == 10
    assert budget["epsilon_spent"] == 0
    assert 7.9 < budget["epsilon_reserved"] <= 8.0001
    assert budget["epsilon_remaining"] < 8 <= budget["epsilon_requested"] + 1e-3
    assert traces(services) == before
    fitting = training(dataset_id, epsilon=budget["epsilon_remaining"])
    assert client.post("/v1/jobs", json=fitting).status_code == 202


@pytest.mark.parametrize(
    ("fail", "error", "status"),
    [
        ("datalens_service.store.datasets.datasets.create", ValueError, 500),
        ("datalens_service.store.datasets.datasets.remember", ValueError, 500),
        ("datalens_service.services.ingestion.decode", OSError, 503),
        ("datalens_service.api.uploads.multipart.FormReader.write", OSError, 503),
    ],
)
def test_upload_that_fails_by_our_mistake_leaves_nothing(
    client: TestClient,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    fail: str,
    error: type[Exception],
    status: int,
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise error(SECRET)

    before = traces(services)
    monkeypatch.setattr(fail, broken)
    reply = client.post("/v1/datasets", **upload(npz()))
    assert (reply.status_code, "code" in reply.json()) == (status, True)
    assert SECRET not in reply.text
    assert traces(services) == before


ABSENT = [
    *((address, 422, "invalid-input", "pattern") for address in ("/v1/jobs/%00", "/v1/jobs/a%20b/report")),
    *(
        (address, 404, "not-found", "")
        for address in ("/v1/jobs/job_unknown", "/v1/datasets/ds_unknown", "/v1/nothing")
    ),
    ("/problems/none", 404, "not-found", ""),
]


def test_what_is_not_there(client: TestClient) -> None:
    for address, status, code, says in ABSENT:
        check(client.get(address), Case(address, {}, status, code, says))


def test_a_data_set_that_is_not_there_trains_nothing(client: TestClient, dataset_id: str) -> None:
    client.delete(f"/v1/datasets/{dataset_id}")
    for name, status, code, says in (
        ("ds_unknown", 404, "not-found", "data set"),
        (dataset_id, 409, "state-conflict", "upload it again"),
    ):
        check(client.post("/v1/jobs", json=training(name)), Case("", {}, status, code, says))


def test_method_not_allowed_names_the_methods(client: TestClient) -> None:
    reply = client.put("/v1/jobs")
    check(reply, Case("", {}, 405, "method-not-allowed", "Allow"))
    assert "POST" in reply.headers["Allow"]


def test_broken_json(client: TestClient) -> None:
    for content in [b"{", b"[]", b'"x"', b"\xff\xfe", b"null"]:
        reply = client.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        assert 400 <= reply.status_code < 500, content
        assert reply.json()["code"] in {"invalid-input", "malformed-request"}


def test_json_body_has_a_limit_of_its_own(client: TestClient) -> None:
    reply = client.post("/v1/jobs", json={"dataset_id": "x" * 2**20})
    check(reply, Case("", {}, 413, "payload-too-large", "Send less"))


def chunked(content: bytes) -> Callable[[], Any]:
    def pieces() -> Any:
        for start in range(0, len(content), 2**16):
            yield content[start : start + 2**16]

    return pieces


def test_limit_holds_without_a_declared_length(client: TestClient, services: Services) -> None:
    before = traces(services)
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    reply = client.post(
        "/v1/datasets",
        content=chunked(head + bytes(2**21))(),
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    check(reply, Case("", {}, 413, "payload-too-large", "Send less"))
    assert traces(services) == before
