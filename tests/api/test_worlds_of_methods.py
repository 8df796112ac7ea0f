"""Two worlds whose private records all differ and whose noisy sums are equal: nobody but the owner tells them apart.

For every registered method, with the evaluation on, over units of one to three records and other numbers of records.
Ids, clock and noise are the same in both; the second world hands out the noisy sums of the first. Compared byte by
byte, while a job runs and behind its end: files that may be passed on, answers to all that consumers and operators may
ask or change, with their headers, pages, messages of webhooks, lines of the log, metrics.
"""

import io
import itertools
import math
import re
import secrets
import shutil
import sys
import threading
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import structlog
from api_builders import another_caller, routes, training
from starlette.testclient import TestClient

from datalens_service.adapters.health import Surroundings
from datalens_service.adapters.webhook_sender import WebhookSender
from datalens_service.api.application import create_app
from datalens_service.api.security.permissions import RULES
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Dataset
from datalens_service.data.intake.stored_dataset import save_dataset
from datalens_service.jobs import execute, job_watch
from datalens_service.mechanisms import Mechanism
from datalens_service.methods import AnyMethod, DpSgd, Moments
from datalens_service.methods.sums import moments
from datalens_service.models.generators import requests
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.store.access import keys, webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import SCOPES, Role
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, released_models
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import JobState
from datalens_service.workers.run_job import run_job
from tests.privacy_gate.contribution_cases import CASES, ContributionCase
from tests.privacy_gate.replay import OWN_ENCODER, _pool
from worlds import freeze

REGISTERED = typing.get_args(AnyMethod)
QUICKLY = {"epochs": 1, "synthetic_images": 12, "seeds": 1, "fidelity": []}
OF_THE_MOMENT = re.compile(
    rb'"(timestamp|seconds)": ?[^,}]*|(?m:(# \w+ )?process_.*$|_created .*$|free_bytes\{.*$)|content="[\w-]{43}"'
)
"""Times, what the process itself is made of, and what belongs to a session."""
HEADERS_OF_THE_MOMENT = {"date", "last-modified", "ratelimit", "ratelimit-policy", "set-cookie", "content-length"}
DONE: dict[str, dict[str, Any]] = {
    "/v1/jobs/{job_id}": {"name": "renamed"},
    "/v1/jobs/{job_id}:clone": {"seed": 3},
    "/v1/webhooks": {"url": "https://192.0.2.2/", "events": ["job.succeeded"]},
    "/v1/webhooks/{webhook_id}": {"events": ["job.failed"]},
}
"""Bodies of requests that change something; of others an empty one."""
CHANGING = (Moments, DpSgd)
"""Methods, one of each result, whose worlds are asked for everything and changed: what is not of one job knows nothing
of its method."""
OF_A_JOB = re.compile(r"\{(job|generator|classifier|webhook)_id\}")
"""In addresses that every world is asked for, besides lists while its job runs."""
Seen = dict[str, bytes]
Plant = Callable[[pytest.MonkeyPatch], None]


class Kind(NamedTuple):
    """A kind of job.

    Attributes:
        ends: How.
        public_test: Whether its test images are public, and so the same in both worlds.
        holdout: Whether a private data set, which differs, is asked for an accuracy.
    """

    ends: JobState = JobState.SUCCEEDED
    public_test: bool = False
    holdout: bool = False


USUAL = Kind()


def case_of(method: type) -> ContributionCase:
    """Of a method, with units of most records; a method without a case is an error, here and in the privacy gate."""
    fits = [case for case in CASES if type(case.method) is method and not case.public]
    encoded = [case for case in fits if getattr(case.method, "encoder", "") != OWN_ENCODER]
    return max(encoded, key=lambda case: case.records)


def stored(client: TestClient, dataset: Dataset) -> str:
    services, dataset_id = client.app.state.services, datasets.new_id()
    path = services.settings.data_dir / "datasets" / dataset_id
    path.parent.mkdir(exist_ok=True)
    save_dataset(dataset, path)
    datasets.create(
        services.database, dataset_id=dataset_id, name="d", schema=dataset.schema, images=dataset.train.images,
        unit_ids=dataset.train.units, format="npz", has_test=dataset.test is not None, records_path=str(path),
        epsilon=20.0, delta=1e-3,
    )  # fmt: skip
    return dataset_id


def requested(client: TestClient, case: ContributionCase, seed: int, kind: Kind) -> dict[str, Any]:
    """The body of a job on records that only this world has."""
    rng = np.random.default_rng(seed)
    dataset = replace(case.dataset(rng), test=replace(case.dataset(rng).train, units=None))
    if kind.public_test:
        schema = dataset.schema.model_copy(update={"test_is_public": True})
        dataset = replace(dataset, schema=schema, test=case.dataset(np.random.default_rng(5)).train)
    evaluation = {**QUICKLY, "holdout": stored(client, _of_others(case, rng))} if kind.holdout else QUICKLY
    images = {"evaluation": evaluation, "synthetic_images": 6} if case.method.result == "generator" else {}
    # The second opinion on a larger ε takes longer.
    spec = case.spec.model_dump(mode="json") | images | {"epsilon": 1.0}
    public = _pool(case.spec, dataset.schema)
    if public is not None:
        spec["public_data"] = stored(client, Dataset(public.schema, public.train, None, b"k" * 32))
    return training(stored(client, dataset), **spec)


def _of_others(case: ContributionCase, rng: np.random.Generator) -> Dataset:
    """Records none of which a training set has; the extreme unit of each case is white."""
    dataset = case.dataset(rng)
    images = np.where(dataset.train.images == 255, 0, dataset.train.images).astype(np.uint8)
    return replace(dataset, train=replace(dataset.train, images=images))


def submitted(client: TestClient, body: dict[str, Any]) -> dict[str, str]:
    """Ids of a job."""
    reply = client.post("/v1/jobs", json=body)
    assert reply.status_code == 202, reply.text
    job_id = str(reply.json()["id"])
    of_job = {f"{kind}_id": released_models.build_id(job_id, kind) for kind in ("generator", "classifier")}
    return {"job_id": job_id, "dataset_id": body["dataset_id"], "name": "card.json", **of_job}


def same_sums(patch: pytest.MonkeyPatch, sums: list[Any], look: Callable[[], None]) -> None:
    """Releases hand out the sums of the first world, one after the other; what is never handed out is left alone.

    Before the first releases of a job somebody looks at it.
    """
    draw, turn = Mechanism._charge_and_draw, itertools.count()

    def drawn(self: Mechanism[Any, Any], contributions: Any, step: int, account: Any, noise: Any) -> Any:
        noisy = draw(self, contributions, step, account, noise)
        if isinstance(account, UnchargedAccount):
            return noisy
        place = next(turn)
        if place < 2:
            look()
        sums.extend([noisy] * (place == len(sums)))
        return sums[place]

    patch.setattr(Mechanism, "_charge_and_draw", drawn)


def world(
    case: ContributionCase, seed: int, sums: list[Any], folder: Path, plant: Plant, kind: Kind
) -> tuple[Seen, Seen]:
    """What everybody may see of a job on the records of a seed, and what its owner sees of it."""
    printed, seen = io.StringIO(), Seen()
    with pytest.MonkeyPatch.context() as patch:
        freeze(patch)
        same_sums(patch, sums, lambda: seen.update(while_it_runs(client, ids["job_id"])))
        plant(patch)
        patch.setattr(public_denoiser, "_STEPS", 4)
        # A classifier of a few records may never see a class in what is drawn.
        patch.setattr(requests, "_ROUNDS", 2)
        # How far a job is between two phases is told now and then, by a clock that nobody stops.
        patch.setattr(job_watch, "PROGRESS_SECONDS", math.inf)
        patch.setattr(WebhookSender, "_round", lambda *_: False)
        # What is noted of workers, of which there are none, depends on when it is looked at.
        patch.setattr(Surroundings, "_look", lambda _: None)
        patch.delenv("DATALENS_REQUIRE_SERVICES", raising=False)
        patch.setattr(sys, "stderr", printed)
        numbers = itertools.count(1)
        patch.setattr(secrets, "token_bytes", lambda size: next(numbers).to_bytes(size))
        with TestClient(create_app(Settings(data_dir=folder)), base_url="http://service") as client:
            database = client.app.state.services.database
            client.headers["Authorization"] = f"Bearer {keys.create(database, 'owner')[1]}"
            hook, _ = webhooks.create(database, "default", "https://192.0.2.1/", [str(event) for event in EventType])
            body = requested(client, case, seed, kind)
            ids = {**submitted(client, body), "webhook_id": hook.id}
            run_job(client.app.state.services.settings, ids["job_id"], threading.Event())
            structlog.contextvars.clear_contextvars()
            ended = jobs.get(database, ids["job_id"])
            assert ended.state == kind.ends, (ended.error, printed.getvalue())
            seen |= files(client, ids["job_id"])
            for role in (Role.CONSUMER, Role.OPERATOR):
                found = answers(client, role, ids, body, everything=type(case.method) in CHANGING)
                seen |= {f"{role} {name}": content for name, content in found.items()}
            owner = {"report": client.get(f"/v1/jobs/{ids['job_id']}/report").content}
    seen["log"] = printed.getvalue().encode()
    seen = {name: OF_THE_MOMENT.sub(b"", content) for name, content in seen.items()}
    # Threads of the service log beside each other.
    return seen | {"log": b"\n".join(sorted(seen["log"].splitlines()))}, owner


def files(client: TestClient, job_id: str) -> Seen:
    listed = client.app.state.services.artifacts.list_artifacts(job_id)
    return {f"file {file.name}": file.path.read_bytes() for file in listed if file.releasable}


def while_it_runs(client: TestClient, job_id: str) -> Seen:
    """How far a job is, and how long it takes."""
    found = {}
    for role in (Role.CONSUMER, Role.OPERATOR):
        caller = another_caller(client, KeyRequest(f"{role} meanwhile", role=role))
        for address in (f"/v1/jobs/{job_id}", "/v1/jobs", f"/v1/jobs/{job_id}/events?wait=0", "/v1/generators"):
            found[f"{role} meanwhile {address}"] = shown(caller.get(address))
    return found


def shown(reply: Any) -> bytes:
    """Status, headers and content, but for headers of the moment."""
    headers = {name: value for name, value in reply.headers.items() if name not in HEADERS_OF_THE_MOMENT}
    return b"%d %s %s" % (reply.status_code, str(sorted(headers.items())).encode(), reply.content)


def answers(client: TestClient, role: Role, ids: dict[str, str], body: dict[str, Any], *, everything: bool) -> Seen:
    """Of every address of a job that a role may ask for, pages included; or of everything, with all that it may do, in
    an order that it can.
    """
    _, plain = keys.create(client.app.state.services.database, KeyRequest(role.value, role=role))
    caller = TestClient(client.app, base_url="http://service", headers={"Authorization": f"Bearer {plain}"})
    browser = TestClient(client.app, base_url="http://service")
    assert browser.post("/sign-in", data={"key": plain}).status_code == 200
    found = {}
    for method in ("GET", "POST", "PATCH", "DELETE") if everything else ("GET",):
        for route in routes(client.app):
            rule = RULES.get(route.operation_id or route.name)
            allowed = method in route.methods and rule is not None and rule.scope in SCOPES[role]
            if allowed and (everything or OF_A_JOB.search(route.path)):
                address = route.path.format_map(Names(ids))
                given = {} if method == "GET" else {"json": {**DONE.get(route.path, {}), **_of_a_job(route.path, body)}}
                reply = (caller if route.include_in_schema else browser).request(method, address, **given)
                found[f"{method} {address}"] = shown(reply)
    return found


def _of_a_job(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return body if path in ("/v1/plans", "/v1/jobs") else {}


class Names(dict[str, str]):
    """Values of parameters of paths; of those that no job of these worlds has, their names."""

    def __missing__(self, name: str) -> str:
        return name


def nothing(_patch: pytest.MonkeyPatch) -> None:
    """The product as it is."""


def differences(
    method: type, template: Path, folder: Path, plant: Plant = nothing, kind: Kind = USUAL
) -> tuple[list[str], Seen]:
    """What tells the worlds of a method apart, by name, and all that was compared."""
    case, sums = case_of(method), list[Any]()
    found = []
    for seed in (1, 2):
        home = folder / str(seed)
        home.mkdir()
        shutil.copy(template, home)
        found.append(world(case, seed, sums, home, plant, kind))
    (one, owners), (other, others) = found
    tells = kind.public_test or kind.ends is not JobState.SUCCEEDED or owners["report"] != others["report"]
    assert tells, "the owner sees which world it is"
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]], one


@pytest.mark.parametrize("method", REGISTERED, ids=lambda method: method.model_fields["name"].default)
def test_nobody_but_the_owner_tells_other_records_apart(method: type, sqlite_template: Path, tmp_path: Path) -> None:
    different, seen = differences(method, sqlite_template, tmp_path)
    assert different == []
    answered = sum(content.startswith(b"200") for name, content in seen.items() if not name.startswith("file"))
    assert (answered > 20, b"job ended" in seen["log"]) == (True, True), answered
    assert any(b'"state":"running"' in content for name, content in seen.items() if "meanwhile" in name)
    assert {"file privacy.json", "file card.json", "file report-releasable.json"} < seen.keys()


def contributions_raise(patch: pytest.MonkeyPatch) -> None:
    """With a private number in the text of the error."""
    patch.setattr(moments, "class_vectors", too_bright)


def too_bright(rows: Any, _measured: Any) -> Any:
    raise ArithmeticError(f"images are too bright: {rows.values.mean()}")


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        (Kind(public_test=True), nothing),
        (Kind(holdout=True), nothing),
        (Kind(ends=JobState.FAILED), contributions_raise),
    ],
    ids=["public test", "hold-out", "failed"],
)
def test_nobody_tells_other_records_apart_by_jobs_of_any_kind(
    kind: Kind, plant: Plant, sqlite_template: Path, tmp_path: Path
) -> None:
    different, _ = differences(Moments, sqlite_template, tmp_path, plant, kind)
    assert different == []


def a_class_count_is_in_messages(patch: pytest.MonkeyPatch) -> None:
    """How many images of a class were read, in the state that a webhook tells."""
    told, run, counts = webhooks.JobNews, execute.run, [0]

    def counted(spec: Any, dataset: Any, **others: Any) -> Any:
        counts.append(int(np.count_nonzero(dataset.train.labels == 0)))
        return run(spec, dataset, **others)

    patch.setattr(execute, "run", counted)
    patch.setattr(webhooks, "JobNews", lambda job, dataset, state: told(job, dataset, f"{state} {counts[-1]}"))


def a_private_accuracy_is_logged(patch: pytest.MonkeyPatch) -> None:
    """The accuracy on private test images, in a line that is allowed."""
    measure = execute.measure

    def logged(*arguments: Any) -> Any:
        evaluation = measure(*arguments)
        accuracy = evaluation.measured.for_owner().measures[0].value
        structlog.get_logger().info("a figure", detail=f"{accuracy:.6f}")
        return evaluation

    patch.setattr(execute, "measure", logged)


@pytest.mark.parametrize(
    ("leak", "where"),
    [
        (a_class_count_is_in_messages, {"operator GET /v1/webhooks/WEBHOOK/deliveries"}),
        (a_private_accuracy_is_logged, {"log"}),
    ],
)
def test_leaks_of_what_differs_are_seen(leak: Plant, where: set[str], sqlite_template: Path, tmp_path: Path) -> None:
    different, _ = differences(Moments, sqlite_template, tmp_path, leak)
    assert {re.sub("wh_[0-9a-f]+", "WEBHOOK", name) for name in different} == where
