"""docs/operations.md names the settings that exist, with their defaults, and no others."""

import re
from pathlib import Path

from datalens_service.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
FIELDS = Settings.model_fields


def table() -> str:
    return PAGE[PAGE.index("| variable |") : PAGE.index("API and workers need")]


def test_every_setting_is_in_the_table_and_every_variable_is_a_setting() -> None:
    assert set(re.findall(r"DATALENS_([A-Z_]+)", table())) == {name.upper() for name in FIELDS}
    assert set(re.findall(r"DATALENS_([A-Z_]+)", PAGE)) <= {name.upper() for name in FIELDS}


def test_numbers_in_the_table_are_the_defaults() -> None:
    for name in ("max_running_jobs", "lease_seconds", "max_attempts"):
        assert f"| `DATALENS_{name.upper()}` | {FIELDS[name].default} |" in table()
