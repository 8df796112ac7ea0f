"""A client that openapi-python-client makes of the API description does whatever the description has."""

import importlib
import io
import pkgutil
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
import pytest

from cli.service import RunningService
from tests.docs.commands import read_blocks

PATIENCE = 120
PACKAGE = "generated_client"
CONFIGURATION = "content_type_overrides"
Call = Callable[..., Any]


class Generated(NamedTuple):
    """The package, and what its generator said."""

    functions: dict[str, Call]
    models: Any
    types: Any
    connect: Call
    said: str


@pytest.fixture(scope="module")
def generated(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    folder = tmp_path_factory.mktemp("generated")
    [page] = [one.text for one in read_blocks("docs/integrations.md") if CONFIGURATION in one.text]
    configuration = re.findall(rf"^{CONFIGURATION}:\n(?:  .*\n)+", page, re.MULTILINE)[0]
    # Its formatters would only be looked for, and it waits for no more than five seconds by itself.
    more = f"post_hooks: []\nhttp_timeout: {PATIENCE}\n"
    (folder / "generator.yaml").write_text(f"{configuration}{more}")
    source = ["--url", f"{service.url}/openapi.json", "--config", folder / "generator.yaml"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *source, "--meta", "none"]
    run = subprocess.run([*command, "--output-path", folder / PACKAGE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    sys.path.insert(0, str(folder))
    try:
        yield _read(run.stdout + run.stderr)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def _read(said: str) -> Generated:
    """Import all modules; functions by the names of their modules, which are those of the operations."""
    package = importlib.import_module(PACKAGE)
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(package.__path__, f"{PACKAGE}.")]
    functions = {
        one.__name__.rpartition(".")[2]: one.sync if hasattr(one, "sync") else one.sync_detailed
        for one in modules
        if hasattr(one, "sync_detailed")
    }
    types = importlib.import_module(f"{PACKAGE}.types")
    models = importlib.import_module(f"{PACKAGE}.models")
    return Generated(functions, models, types, package.AuthenticatedClient, said)


def test_nothing_is_left_out(generated: Generated, service: RunningService) -> None:
    described = httpx2.get(f"{service.url}/openapi.json", timeout=PATIENCE).json()
    operations = [one["operationId"] for methods in described["paths"].values() for one in methods.values()]
    names = {re.sub(r"(?=[A-Z])", "_", name).lower() for name in operations}
    assert generated.functions.keys() == names
    # It says what it leaves out, and nothing else.
    assert not re.search("warning|unable|omitted|unsupported", generated.said, re.IGNORECASE), generated.said


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_whole_job(generated: Generated, service: RunningService, npz: Path, in_chunks: bool) -> None:
    call, models = generated.functions, generated.models
    with generated.connect(service.url, token=service.api_key) as client:
        made = (_upload_in_chunks if in_chunks else _upload)(generated, client, npz)
        read = _until(
            lambda: call["get_dataset_validation"](made.id, client=client), lambda one: one.state != "validating"
        )
        assert [one.name for one in read.review.classes] == ["0", "1"]
        confirmed = models.ConfirmationRequest(confirm_classes=True)
        assert call["confirm_dataset"](made.id, client=client, body=confirmed).state == "ready"

        method = models.Moments(subspace_dimensions=8)
        settings = models.EvaluationSettings(enabled=False)
        spec = models.RequestedSpec(method=method, epsilon=1, synthetic_images=20, evaluation=settings)
        request = models.TrainingRequest(made.id, spec, accept_low_utility=True)
        plan = call["create_plan"](client=client, body=request)
        assert plan.fits
        assert (plan.spec.method.name, plan.spec.method.subspace_dimensions) == ("moments", 8)

        job = call["create_job"](client=client, body=request)
        job = _until(lambda: call["get_job"](job.id, client=client), lambda one: one.state not in ("queued", "running"))
        assert job.state == "succeeded", job.error
        npz_format = models.GetJobSyntheticFormat.NPZ
        images = call["get_job_synthetic"](job.id, client=client, format_=npz_format, synthetic_images=30)
        assert np.load(images.payload)["train_images"].shape == (30, 8, 8)
        assert call["get_job_dataset"](job.id, client=client).payload.read(2) == b"PK"
        assert call["get_job_samples"](job.id, client=client).payload.read(4) == b"\x89PNG"
        refused = call["get_job_classifier"](job.id, client=client)
        assert (type(refused), refused.code) == (models.Problem, "state-conflict")


def _upload(generated: Generated, client: Any, path: Path) -> Any:
    with path.open("rb") as file:
        sent = generated.types.File(file, path.name)
        form = generated.models.DatasetForm(file=sent, epsilon=4.5, public_test=True)
        return generated.functions["create_dataset"](client=client, body=form)


def _upload_in_chunks(generated: Generated, client: Any, path: Path) -> Any:
    call, content = generated.functions, path.read_bytes()
    upload = call["create_upload"](client=client, upload_length=len(content), tus_resumable="1.0.0")
    for start in range(0, len(content), 2048):
        chunk = generated.types.File(io.BytesIO(content[start : start + 2048]))
        call["append_to_upload"](upload.id, client=client, body=chunk, upload_offset=start, tus_resumable="1.0.0")
    assert call["get_upload"](upload.id, client=client).complete
    request = generated.models.DatasetRequest(upload_id=upload.id, epsilon=4.5)
    return call["create_dataset_from_upload"](client=client, body=request)


def _until(found: Callable[[], Any], settled: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not settled(latest := found()):
        assert time.monotonic() < deadline, latest
        time.sleep(0.1)
    return latest
