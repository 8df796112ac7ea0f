"""A preset is sent to a service by its name; only parameters beside it make the command line resolve it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from example_proof import AT, DATASET_ID, SCHEMA
from tests.client.fake_service import FakeService, server

__all__ = ["server"]

Run = Callable[..., Result]
DATASET = json.dumps({
    "id": DATASET_ID, "name": "MNIST", "state": "ready", "format": "npz", "created_at": AT.isoformat(),
    "deleted_at": None, "schema": SCHEMA.model_dump(mode="json"), "has_test_split": True, "privacy": None,
}).encode()  # fmt: skip
PROBLEM = json.dumps({"code": "state-conflict", "title": "No", "detail": "Heard, and refused."}).encode()


@pytest.fixture
def listener(server: FakeService) -> FakeService:
    """Answers for one data set, and refuses every job after having heard what it is."""
    server.body, server.posted = DATASET, (409, PROBLEM)
    return server


def sent(datalens: Run, listener: FakeService, *options: object) -> dict[str, Any]:
    """What is sent to be submitted, and to be priced alike."""
    for more in ((), ("--dry-run",)):
        result = datalens("jobs", "submit", "ds_1", "--epsilon", 1, "--url", listener.url, *options, *more)
        assert "Heard, and refused." in result.stderr, result.output
    paths, specs = zip(*[(path, json.loads(body)["spec"]) for path, _, body in listener.requests if body], strict=True)
    # What is expected of a job is asked for before it is submitted.
    assert paths == ("/v1/plans", "/v1/jobs", "/v1/plans")
    assert specs[0] == specs[1] == specs[2]
    return dict(specs[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--preset", "fast"), {"preset": "fast"}),
        (("--preset", "of-a-newer-service"), {"preset": "of-a-newer-service"}),
        (("--preset", "auto", "--purpose", "teach"), {"preset": "auto", "purpose": "teach"}),
        (("--purpose", "teach"), {"purpose": "teach"}),
        ((), {}),
        (("--preset", "fast", "--set", "evaluation.epochs=3", "--no-evaluation"), {"preset": "fast"}),
        (("--method", "moments", "--set", "clip_norm=0.5"), {"method": {"name": "moments", "clip_norm": 0.5}}),
    ],
    ids=str,
)
def test_what_was_chosen_is_sent_as_it_was_said(
    datalens: Run, listener: FakeService, options: tuple[str, ...], said: dict[str, Any]
) -> None:
    spec = sent(datalens, listener, *options)
    assert {name: spec[name] for name in ("method", "preset", "purpose") if name in spec} == said
    assert (spec["epsilon"], spec["seed"]) == (1, 0)
    changed = "evaluation.epochs=3" in options
    assert spec["evaluation"] == ({"enabled": False, "epochs": 3} if changed else {"enabled": True})


def test_parameters_beside_a_preset_are_sent_as_the_method_they_change(datalens: Run, listener: FakeService) -> None:
    spec = sent(datalens, listener, "--preset", "classifier", "--set", "steps=7")
    assert "preset" not in spec
    assert spec["method"]["steps"] == 7


@pytest.mark.parametrize(
    "wrong", [("--method", "momnets"), ("--set", "evaluation.epoch=3"), ("--synthetic-images", "-1")]
)
def test_what_cannot_be_right_is_refused_here(datalens: Run, listener: FakeService, wrong: tuple[str, ...]) -> None:
    result = datalens("jobs", "submit", "ds_1", "--epsilon", 1, "--url", listener.url, *wrong)
    assert result.exit_code == 2, result.output
    assert not [body for _, _, body in listener.requests if body]
