"""The table of OWASP ASVS 5, level 2: every test that it names is there."""

import csv

import pytest

from repository import ROOT

ROWS = list(csv.DictReader((ROOT / "docs" / "asvs.csv").read_text().splitlines()))


def test_every_chapter_has_a_row() -> None:
    assert {int(row["requirement"].split(maxsplit=1)[0].split(".")[0]) for row in ROWS} == set(range(1, 18))


@pytest.mark.parametrize("row", [row for row in ROWS if row["shown by"]], ids=lambda row: row["requirement"])
def test_a_requirement_is_shown_by_a_test_that_there_is(row: dict[str, str]) -> None:
    file, _, name = row["shown by"].partition("::")
    assert f"def {'test_' if name == '*' else name + '('}" in (ROOT / file).read_text()


def test_what_no_test_shows_has_a_reason() -> None:
    assert all(row["held by"] for row in ROWS)
