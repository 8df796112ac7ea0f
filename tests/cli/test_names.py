"""Jobs and data sets are named by id or by the name that their owner gave them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.service import RunningService
from datalens_service.cli import names
from datalens_service.cli.failures import ExitCode
from datalens_service.client import ClientError

Run = Callable[..., Any]


def test_a_name_works_wherever_an_id_does(
    datalens: Run, datalens_json: Run, service: RunningService, npz: Path
) -> None:
    uploaded = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 4, *service.access)
    datalens("datasets", "label", uploaded["id"], "--name", "wards of May", *service.access)
    assert datalens_json("datasets", "show", "wards of May", *service.access)["id"] == uploaded["id"]
    options = ("--epsilon", 1, "--method", "moments", "--no-evaluation", *service.access)
    job = datalens_json("jobs", "submit", "wards of May", *options)
    assert job["dataset_id"] == uploaded["id"]
    datalens("jobs", "label", job["id"], "--name", "first try", *service.access)
    assert datalens_json("jobs", "show", "first try", *service.access)["id"] == job["id"]
    unknown = datalens("jobs", "show", "second try", *service.access)
    assert unknown.exit_code == ExitCode.NOT_FOUND
    assert "No job has the id or the name 'second try'." in unknown.stderr


def test_a_deleted_dataset_leaves_its_name_to_the_next_one(
    datalens: Run, datalens_json: Run, service: RunningService, npz: Path
) -> None:
    upload = (
        "datasets",
        "upload",
        "--confirm-classes",
        npz,
        "--epsilon",
        4,
        "--name",
        "wards of June",
        *service.access,
    )
    first = datalens_json(*upload)["id"]
    second = datalens_json(*upload, "--account", "wards of June")["id"]
    several = datalens("datasets", "show", "wards of June", *service.access)
    assert several.exit_code == ExitCode.BAD_INPUT
    assert first in several.stderr
    assert second in several.stderr
    datalens_json("datasets", "delete", first, "--yes", *service.access)
    assert datalens_json("datasets", "show", "wards of June", *service.access)["id"] == second


def test_images_go_to_no_service_for_a_name_that_no_job_has(datalens: Run, service: RunningService, npz: Path) -> None:
    for command in (
        ("predict", "first try of all", npz),
        ("individual-epsilon", "first try of all", npz, "--label", 0),
    ):
        result = datalens(*command, *service.access)
        assert result.exit_code == ExitCode.NOT_FOUND
        assert "No job has the id or the name 'first try of all'." in result.stderr


def test_a_name_of_several_is_refused_with_their_ids() -> None:
    jobs = [SimpleNamespace(id=f"job_{number}", name="again") for number in range(2)]
    client: Any = SimpleNamespace(jobs=lambda: iter(jobs))
    assert names.job_id(client, "job_7") == "job_7"
    with pytest.raises(ClientError, match="name one of job_0, job_1"):
        names.job_id(client, "again")
