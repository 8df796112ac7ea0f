"""The synchronous client is generated from the asynchronous one: never stale, and the same to its users."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import datalens_service.client
from datalens_service.client import AsyncClient, AsyncJobHandle, Client, JobHandle

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "scripts" / "generate_sync_client.py"
SYNC = Path(datalens_service.client.__file__).parent / "_sync"
PAIRS = [(AsyncClient, Client), (AsyncJobHandle, JobHandle)]


def read_modules(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def list_methods(kind: type) -> dict[str, object]:
    """Public functions of a class, without pydantic's."""
    members = inspect.getmembers(kind, inspect.isfunction)
    return {name: member for name, member in members if name[0] != "_" and "client" in member.__module__}


def test_the_generated_files_are_those_of_the_source(tmp_path: Path):
    subprocess.run([sys.executable, str(GENERATOR), str(tmp_path / "_sync")], check=True)
    assert read_modules(SYNC) == read_modules(tmp_path / "_sync"), "run scripts/unasync"


def test_no_asynchronous_name_is_left_in_the_generated_files():
    for name, text in read_modules(SYNC).items():
        # unasync turns an `Async…` that the list of names lacks into `Sync…`.
        assert re.findall(r"\b(?:async|await|asyncio|A?[Ss]ync[A-Z]\w+)\b", text) == [], name


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_both_clients_have_the_same_methods_arguments_and_docstrings(asynchronous: type, synchronous: type):
    twins = list_methods(asynchronous)
    assert len(twins) > 5
    assert twins.keys() == list_methods(synchronous).keys()
    for name, method in list_methods(synchronous).items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(twins[name]).parameters)
        assert inspect.getdoc(method) == inspect.getdoc(twins[name])


@pytest.mark.parametrize("kind", [AsyncClient, Client, AsyncJobHandle, JobHandle])
def test_every_method_has_types_that_resolve(kind: type):
    for method in list_methods(kind).values():
        assert "return" in get_type_hints(method)


def test_the_list_of_methods_that_users_have():
    assert list_methods(Client).keys() == {
        "audits",
        "cancel_audit",
        "download_audit_picture",
        "get_audit",
        "submit_audit",
        "wait_for_audit",
        "cancel",
        "update_job",
        "update_dataset",
        "classifiers",
        "confirm_dataset",
        "download_classifier",
        "get_classifier",
        "predict",
        "close",
        "dataset",
        "datasets",
        "delete_dataset",
        "download",
        "download_bundle",
        "download_file",
        "download_generator",
        "download_preview",
        "download_report",
        "download_samples",
        "events",
        "files",
        "get_job",
        "individual_epsilon",
        "jobs",
        "pause",
        "plan",
        "report",
        "resume",
        "submit",
        "upload",
        "upload_dataset",
        "upload_encoder",
        "validation",
        "wait",
        "wait_for_dataset",
    }
