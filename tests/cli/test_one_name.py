"""One thing has one name: as an option, as a member of REST, as an argument of Python and as a field of a page.

Earlier names are taken and not shown.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cli.commands import commands
from datalens_service.api.http.strictness import list_parameters
from datalens_service.api.rest import downloads, generators
from datalens_service.api.schemas.audits import AuditRequest
from datalens_service.api.schemas.common import PlanRequest
from datalens_service.api.schemas.datasets import ConfirmationRequest
from datalens_service.api.schemas.jobs import Decision
from datalens_service.api.schemas.releases import ReleaseChanges, ReleaseLinkCreate
from datalens_service.cli.option_groups import EARLIER_NAMES
from datalens_service.client import Client
from datalens_service.integrations.hub import ReleaseOptions
from datalens_service.integrations.images import from_job
from datalens_service.mechanisms.topagg import TopAggParameters
from datalens_service.methods.voting.datalens import DataLens
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services.dataset_declaration import DatasetForm

TEMPLATES = Path(__file__).parents[2] / "api" / "pages" / "templates"
ROUTES = {route.operation_id: route for router in (downloads.router, generators.router) for route in router.routes}


def members(*models: type[BaseModel]) -> set[str]:
    return {name for model in models for name in model.model_fields}


JOB = members(RequestedSpec, PlanRequest)
UPLOAD = members(DatasetForm)
DRAWN = {name for route in ROUTES.values() for name in list_parameters(route)}
# Members by the command whose options have their names.
MEMBERS = {
    "train": JOB | UPLOAD,
    "plan": JOB | UPLOAD | members(DataLens, TopAggParameters),
    "audit": JOB | UPLOAD | members(AuditRequest),
    "jobs submit": JOB,
    "jobs download": DRAWN,
    "jobs push": DRAWN,
    "audits submit": JOB | members(AuditRequest),
    "datasets upload": UPLOAD,
    "datasets confirm": members(ConfirmationRequest),
    "jobs release": members(Decision),
    "jobs withhold": members(Decision),
    "releases label": members(ReleaseChanges),
    "releases share": members(ReleaseLinkCreate),
}
OPTIONS_ALONE = {
    "--data": "a file of this machine, where REST names a data set",
    "--set": "KEY=VALUE: a parameter of the method or the evaluation, by its name",
    "--out": "where this machine writes",
    "--folder": "where this machine writes",
    "--force": "whether this machine writes over a file",
    "--picture": "where this machine writes",
    "--json": "how the command answers",
    "--wait": "what the command does after its request",
    "--yes": "answers the question of the command",
    "--dry-run": "another request: POST /v1/plans",
    "--bundle": "another request: GET /v1/jobs/{job_id}/dataset",
    "--file": "another request: GET /v1/jobs/{job_id}/artifacts/{name}",
    "--resume": "what to do with an upload, whose id follows",
    "--job": "a kind of target, whose id or name follows",
    "--unprotected": "a kind of target",
    "--days": "counts from now what `expires_at` dates",
    "--repository": "of Hugging Face",
    "--public": "of Hugging Face",
    "--url": "which service",
    "--api-key": "which service",
    # Said once for each.
    "--attack": "one of `attacks`",
    "--group": "one of `groups`",
}
FIELDS_ALONE = {
    "plan.html.j2": {"encoder"},  # a part of the method
    "release_links.html.j2": {"days"},  # a date by a count of days
    "upload.html.j2": {"file", "prepare"},  # the upload itself; whether the fields of prepare_… are asked for
}


def list_options(command: str) -> Iterator[str]:
    found = dict(commands())[command]
    return (one.opts[0] for one in found.params if one.opts[0].startswith("--") and one.opts[0] != "--help")


@pytest.mark.parametrize("command", MEMBERS)
def test_options_are_members_of_the_request(command: str) -> None:
    names = {option.removeprefix("--").replace("-", "_") for option in list_options(command)} - MEMBERS[command]
    assert {f"--{name.replace('_', '-')}" for name in names} <= OPTIONS_ALONE.keys()


def test_every_exception_is_needed() -> None:
    options = {option for command in MEMBERS for option in list_options(command)}
    assert options >= OPTIONS_ALONE.keys()
    for option in OPTIONS_ALONE:
        name = option.removeprefix("--").replace("-", "_")
        assert [one for one in MEMBERS if option in list_options(one) and name in MEMBERS[one]] == []


def test_prepare_takes_the_names_that_errors_about_an_upload_say() -> None:
    [prepare] = [command for name, command in commands() if name == "prepare"]
    taken = {option for parameter in prepare.params for option in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in UPLOAD if name.startswith("prepare_")} <= taken


@pytest.mark.parametrize(
    ("call", "known", "alone"),
    [
        (Client.submit, JOB, {"spec", "idempotency_key"}),
        (Client.plan, JOB, set()),
        (Client.upload_dataset, UPLOAD, {"path", "upload_id", "on_bytes"}),
        (Client.confirm_dataset, members(ConfirmationRequest), {"dataset_id"}),
        (Client.update_release, members(ReleaseChanges), {"release_id"}),
        (Client.share_release, members(ReleaseLinkCreate), {"release_id"}),
        (Client.download, DRAWN, {"job_id", "path"}),
        (Client.download_bundle, DRAWN, {"job_id", "path"}),
        (from_job, DRAWN, {"client", "job_id", "transform"}),
        (ReleaseOptions, DRAWN, set()),
    ],
)
def test_arguments_are_members_of_the_request(call: Any, known: set[str], alone: set[str]) -> None:
    arguments = inspect.signature(call).parameters.keys() - {"self"}
    assert arguments - known <= alone


@pytest.mark.parametrize(
    ("page", "known"),
    [
        ("plan.html.j2", JOB),
        ("upload.html.j2", UPLOAD),
        ("parts/review.html.j2", members(ConfirmationRequest)),
        ("parts/job_live.html.j2", DRAWN | members(Decision)),
        ("releases.html.j2", DRAWN),
        ("shared.html.j2", DRAWN),
        ("release_links.html.j2", members(ReleaseChanges, ReleaseLinkCreate)),
        ("parts/classifier_result.html.j2", DRAWN),
    ],
)
def test_fields_of_pages_are_members_of_the_request(page: str, known: set[str]) -> None:
    fields = set(re.findall(r"<(?:input|select|textarea)[^>]* name=\"(\w+)\"", (TEMPLATES / page).read_text()))
    assert fields
    assert fields - known <= FIELDS_ALONE.get(page, set())


@pytest.mark.parametrize(("earlier", "name"), EARLIER_NAMES.items())
def test_earlier_names_of_options_are_taken_and_not_shown(earlier: str, name: str) -> None:
    having = {
        path: (command, one)
        for path, command in commands()
        for one in command.params
        if name in (*one.opts, *one.secondary_opts)
    }
    assert having
    for path, (command, option) in having.items():
        value = [] if option.is_flag else ["7"]
        # What is not understood is ignored, and what is said last counts.
        before = ["--no-evaluation"] if name == "--evaluation" else []
        given = ([*before, earlier, *value], [*before, name, *value], before)
        read = [command.make_context(path, one, resilient_parsing=True).params[option.name] for one in given]
        assert read[0] == read[1] != read[2], path
        shown = {written for one in command.params for written in (*one.opts, *one.secondary_opts)}
        assert earlier not in shown, path


def test_an_earlier_name_of_an_argument_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is called") as warned:
        options = ReleaseOptions(licence="CC0-1.0", n=5)  # type: ignore[call-arg]
    assert {str(one.message) for one in warned} == {"licence is called license.", "n is called synthetic_images."}
    assert options == ReleaseOptions(license="CC0-1.0", synthetic_images=5)
    with pytest.raises(TypeError, match="name it once"):
        ReleaseOptions(n=5, synthetic_images=6)  # type: ignore[call-arg]
