"""The table of private reads names every module that reads private records, and says what is true of each job."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from datalens_service.report.disclosures import data_accesses
from datalens_service.report.private_reads import PRIVATE_READS
from repository import ROOT

READING_CALLS = {"load_dataset", "save_dataset", "decode", "read_upload", "open_holdout"}
SPLITS = {"train", "test"}
# Where `train` is no split of a data set, or what is read are released images that were downloaded.
NOT_RECORDS = {
    "datalens_service.cli.app",
    "datalens_service.evaluation.metrics.fidelity",
    "datalens_service.integrations.images",
    # Images that their owner declared public, and no others.
    "datalens_service.training",
}


def modules() -> Iterator[tuple[str, Path]]:
    for room in ("api", "workers", "datalens_service"):
        for path in sorted((ROOT / room).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def reads_records(source: str) -> bool:
    """Whether a module opens stored records, or touches the splits of a data set."""
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READING_CALLS:
            return True
        if isinstance(node, ast.Attribute) and node.attr in SPLITS and id(node) not in called:
            return True
    return False


def named_reads(source: str) -> set[str]:
    """What a module says of itself."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PRIVATE_READS":
            return set(ast.literal_eval(node.value))
    return set()


def test_every_module_that_reads_records_says_so() -> None:
    silent = {name for name, path in modules() if reads_records(path.read_text()) and not named_reads(path.read_text())}
    assert silent - NOT_RECORDS == set(), "name in PRIVATE_READS what it reads; report/private_reads.py has them all"


def test_modules_name_reads_that_reports_list() -> None:
    named = set().union(*(named_reads(path.read_text()) for _, path in modules()))
    listed = {read.access: read.status for read in PRIVATE_READS}
    assert named <= set(listed)
    assert named >= {access for access, status in listed.items() if status in ("charged", "owner only, not charged")}


@pytest.mark.parametrize(
    "source",
    [
        "def f(dataset):\n    return dataset.train.images",
        "def f(stored):\n    return load_dataset(stored.path)",
        "x = subject.dataset.test",
    ],
)
def test_a_module_that_reads_records_is_recognised(source: str) -> None:
    assert reads_records(source)
    assert not reads_records("network.train()\nx = count_of(train)")


def by_access(spec: dict[str, object], *, served: bool) -> dict[str, tuple[str, str, str]]:
    return {row.access: (row.status, row.audience, row.what) for row in data_accesses(spec, served=served)}


def test_a_service_says_that_it_shows_the_owner_pictures_and_counts() -> None:
    rows = by_access({"evaluation": {"enabled": True}}, served=True)
    for access in ("reading the upload", "pictures of the upload"):
        assert rows[access][:2] == ("owner only, not charged", "owner")
    assert "first images of each class" in rows["pictures of the upload"][2]
    assert "number of records in each class" in rows["reading the upload"][2]


def test_a_run_without_a_service_says_that_nothing_shows_the_images() -> None:
    rows = by_access({"evaluation": {"enabled": False}}, served=False)
    for access in ("reading the upload", "pictures of the upload"):
        assert rows[access][:2] == ("none", "nobody")
        assert "No service" in rows[access][2]
    assert rows["fidelity"][0] == "none"


def test_every_read_is_in_every_report_with_a_sentence() -> None:
    for served in (True, False):
        rows = data_accesses({"evaluation": {"enabled": served}}, served=served)
        assert [row.access for row in rows] == [
            read.access for read in PRIVATE_READS if "generator" in (read.results or {"generator"})
        ]
        assert all(row.what.strip() for row in rows)


def test_a_set_aside_data_set_is_charged_if_it_is_named() -> None:
    access = "accuracy on a data set that was set aside"
    assert by_access({"evaluation": {"enabled": True, "holdout": "ds_a"}}, served=True)[access][0] == "charged"
    assert by_access({"evaluation": {"enabled": True, "holdout": None}}, served=True)[access][0] == "none"
