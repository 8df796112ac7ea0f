"""The public names of the package, and what it costs to import them."""

import subprocess
import sys

import pytest

import datalens_service
from datalens_service.data.dataset import Dataset, Schema, Split


def _printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", datalens_service.__all__)
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(datalens_service, name)
    assert found.__name__ == name
    assert found.__doc__


def test_public_names_are_listed_once() -> None:
    assert sorted(set(datalens_service.__all__)) == datalens_service.__all__
    assert set(datalens_service.__all__) <= set(dir(datalens_service))
    assert (datalens_service.Dataset, datalens_service.Schema, datalens_service.Split) == (Dataset, Schema, Split)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="magic"):
        _ = datalens_service.magic


@pytest.mark.parametrize("before", ["", "import datalens_service.training\nfrom datalens_service.jobs import execute"])
def test_run_is_the_function_whatever_was_imported_before(before: str) -> None:
    code = f"{before}\nimport datalens_service, inspect\nprint(inspect.isfunction(datalens_service.run))"
    assert _printed(code) == "True"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import datalens_service", ("torch", "numpy", "pydantic")),
        ("from datalens_service import Client", ("torch", "numpy", "scipy", "sqlalchemy")),
        (
            "from datalens_service import run, TrainingSpec, DataLens, preset, read_upload, Generator",
            ("torch", "fastapi"),
        ),
    ],
)
def test_importing_loads_no_more_than_it_needs(statement: str, absent: tuple[str, ...]) -> None:
    assert _printed(f"{statement}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])") == "[]"
