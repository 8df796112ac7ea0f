"""At a terminal, persons with training images and test images are said, and refused as a public test split."""

import json

from cli.conftest import Run
from tests.case_files import case_path

TRAIN = ("train", "--data", case_path("persons_both.npz"), "--records-per-unit", 2, "--epsilon", 2, "--out", "out")


def test_a_public_test_split_is_refused_and_names_the_persons(datalens: Run) -> None:
    refused = datalens(*TRAIN, "--public-test", "--confirm-classes", "--json")
    error = json.loads(refused.stdout)["error"]
    assert (refused.exit_code, error["code"]) == (2, "persons-in-both-splits")
    assert "leave --public-test out" in error["detail"]
    assert {file["name"].partition(":")[0] for file in error["bad_files"]} == {"ada", "cem"}


def test_a_private_test_split_says_how_many_persons_are_in_both(datalens: Run) -> None:
    """Without a terminal the classes are not confirmed, so nothing is trained; what was read is said before."""
    said = datalens(*TRAIN).stderr
    assert "persons_in_both, 2 (" in said
    assert "ada: 2 training images and 1 test image" in said
