"""A terminal is told of options: by commands of this machine, by those of a service, and by the client only for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.service import RunningService
from datalens_service.cli.failures import ExitCode
from datalens_service.client import Client, ClientError
from datalens_service.voices import Voice, current_voice

Run = Callable[..., Any]


def test_a_command_of_this_machine_speaks_of_options_and_leaves_no_voice_behind(datalens: Run, npz: Path) -> None:
    result = datalens(
        "plan",
        "--data",
        npz,
        "--epsilon",
        0.0001,
        "--method",
        "dp_sgd",
        "--set",
        "architecture=mlp",
        "--set",
        "noise_multiplier=0.5",
    )
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
