"""Jobs and data sets are named by id or by the name that their owner gave them.

A terminal is told of options: by commands of this machine, by those of a service, and by the client only for it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.service import RunningService
from datalens_service.base.wording import Voice, current_voice
from datalens_service.cli.failures import ExitCode
from datalens_service.client import Client, ClientError

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
    options = ("--confirm-classes", "--epsilon", 4, "--name", "wards of June", *service.access)
    upload = ("datasets", "upload", npz, *options)
    first = datalens_json(*upload)["id"]
    second = datalens_json(*upload, "--account", "wards of June")["id"]
    several = datalens("datasets", "show", "wards of June", *service.access)
    assert several.exit_code == ExitCode.BAD_INPUT
    assert first in several.stderr
    assert second in several.stderr
    datalens_json("datasets", "delete", first, "--yes", *service.access)
    assert datalens_json("datasets", "show", "wards of June", *service.access)["id"] == second


def test_images_go_to_no_service_for_a_name_that_no_job_has(datalens: Run, service: RunningService, npz: Path) -> None:
    name = "first try of all"
    for command in (("predict", name, npz), ("individual-epsilon", name, npz, "--label", 0)):
        result = datalens(*command, *service.access)
        assert result.exit_code == ExitCode.NOT_FOUND
        assert f"No job has the id or the name {name!r}." in result.stderr


def test_a_command_of_this_machine_speaks_of_options_and_leaves_no_voice_behind(datalens: Run, npz: Path) -> None:
    settings = ("--set", "architecture=mlp", "--set", "noise_multiplier=0.5")
    result = datalens("plan", "--data", npz, "--epsilon", 0.0001, "--method", "dp_sgd", *settings)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "raise --epsilon or --set noise_multiplier" in " ".join(result.stderr.split())
    assert current_voice() is Voice.REST


def test_a_service_speaks_of_options_to_commands_and_of_members_to_python(
    datalens: Run, service: RunningService, npz: Path
) -> None:
    arguments = ("--epsilon", 1, *service.access)
    uploaded = datalens("datasets", "upload", npz, "--name", "voices", "--confirm-classes", *arguments)
    assert uploaded.exit_code == 0, uploaded.output
    refused = datalens("jobs", "submit", "voices", "--priority", 9, *arguments)
    assert "lower --priority" in " ".join(refused.stderr.split())
    with Client(service.url, service.api_key) as client:
        [dataset] = [each for each in client.datasets() if each.name == "voices"]
        with pytest.raises(ClientError, match="lower priority"):
            client.submit(dataset.id, {"epsilon": 1}, priority=9)
