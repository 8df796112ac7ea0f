"""Schemathesis against the application in this process: generated requests, and what the description says of answers.

    scripts/schemathesis [REQUESTS PER OPERATION]

Requests that change something do: the service is a fresh one in a temporary folder.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import api_builders
import hypothesis
import schemathesis
from hypothesis import HealthCheck, strategies
from schemathesis.checks import not_a_server_error
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings

PATIENCE = 240
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# With a known id, each of these would start a process that draws up to a million images.
SLOW = {"getJobSynthetic", "getJobDataset", "createGeneratorSamples"}

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")


@dataclass(frozen=True)
class Target:
    """A running application with one of everything.

    Attributes:
        schema: The description, read by Schemathesis.
        client: Reaches the application, with a key.
        ids: Of objects that exist, by the parameter that names them.
    """

    schema: Any
    client: Any
    ids: dict[str, str]


@contextmanager
def running(folder: Path) -> Iterator[Target]:
    """An application on a database of its own."""
    app = create_app(Settings(data_dir=folder / "data", requests_per_minute=10**9, concurrent_requests=1000))
    with asgi.get_client(app) as client:
        client.headers.update(api_builders.bearer(client, "fuzzing"))
        dataset = api_builders.send_images(client, epsilon="90").json()["id"]
        ids = api_builders.one_of_everything(client, app.state.services, dataset, folder)
        yield Target(schemathesis.openapi.from_dict(app.openapi()), client, ids)


def fuzz(target: Target, requests_per_operation: int) -> Counter[str]:
    """Send generated requests to every operation; their number by operation.

    Raises:
        FailureGroup: Of Schemathesis, with the request that shows what is wrong.
    """
    sent: Counter[str] = Counter()
    for result in target.schema.get_all_operations():
        _one(target, result.ok(), requests_per_operation, sent)
    return sent


def _one(target: Target, operation: Any, requests: int, sent: Counter[str]) -> None:
    name = operation.definition.raw["operationId"]

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=requests, database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @hypothesis.given(case=operation.as_strategy(), known=strategies.booleans())
    def send(case: Any, known: bool) -> None:
        if known and name not in SLOW and case.path_parameters:
            case.path_parameters.update({key: target.ids[key] for key in case.path_parameters if key in target.ids})
        sent[name] += 1
        reply = case.call(session=target.client, base_url=str(target.client.base_url), timeout=PATIENCE)
        case.validate_response(reply, checks=CHECKS)

    send()


def main() -> None:
    """Fuzz with as many requests per operation as the command line says."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as target:
        sent = fuzz(target, requests)
    sys.stdout.write(f"{sent.total()} requests to {len(sent)} operations, nothing to complain about.\n")


if __name__ == "__main__":
    main()
