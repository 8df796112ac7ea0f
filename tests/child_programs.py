"""Programs for which the product starts a process, as calls within this one: most tests are about their answers.

What a process confines, limits or survives, `tests/data/test_sandbox.py` and `tests/test_sampling.py` look at.
"""

import importlib
import io
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from datalens_service.data.intake.sandbox import decode, decode_images, encode, sandbox
from datalens_service.data.intake.sandbox.exchange import OUTCOME, ReadingOutcome, ReadingRequest, attempt
from datalens_service.subprocesses import child_program

_TURN = threading.Lock()


@pytest.fixture(autouse=True)
def without_processes() -> Iterator[None]:
    """For every test of a folder whose conftest imports this."""
    with in_this_process():
        yield


@contextmanager
def in_this_process() -> Iterator[None]:
    """Meanwhile, such a program is a call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_run", _read)
        patch.setattr(child_program, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": _call}))
        yield


def _read(request: ReadingRequest, *limits: Any) -> int:
    """Stands for the process that reads a file; its exit status."""
    try:
        (request.folder / OUTCOME).write_text(attempt(partial(_outcome, request, limits[-1])).model_dump_json())
    except OSError:
        return os.EX_IOERR
    return 0


def _outcome(request: ReadingRequest, attachment: Any) -> ReadingOutcome:
    if isinstance(request, encode.EncodeRequest):
        return encode.encode(request, attachment[: request.graph_bytes], attachment[request.graph_bytes :])
    if isinstance(request, decode.RecordsRequest):
        return decode.read_records(request, decode.choose_decoder(request.choices))
    return decode_images.read_images(request)


def _call(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Stands for `subprocess.run` of `python -P -m MODULE ARGUMENTS` with a module of ours."""
    module, *arguments = command[3:]
    if not module.startswith("datalens_service."):
        return subprocess.run(command, **options)
    code = 1
    with _TURN, redirect_stderr(io.StringIO()) as said, suppress(Exception):
        code = importlib.import_module(module).main(arguments)
    return subprocess.CompletedProcess(command, code, stderr=said.getvalue().encode())
