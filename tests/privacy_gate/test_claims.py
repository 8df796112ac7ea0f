"""Pages of privacy, defects and proofs name code, tests and planted bugs that exist, and figures that are right."""

import re
from pathlib import Path

import pytest
from scipy.stats import norm

from datalens_service.privacy.accounting import epsilon_for_mu, mu_for_epsilon, round_up
from repository import ROOT

from .gate import PLANTS

PAGES = [
    ROOT / "docs" / "privacy.md",
    ROOT / "docs" / "defects.md",
    *sorted((ROOT / "docs" / "mechanisms").glob("*.md")),
]
PRIVACY, DEFECTS = (page.read_text() for page in PAGES[:2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_anchor_exists(page: Path):
    anchors = re.findall(r"`((?:datalens_service|workers|tests)/[\w./]+\.py)`", page.read_text())
    assert anchors
    assert [anchor for anchor in anchors if not (ROOT / anchor).is_file()] == []


def test_every_defect_has_its_line_and_something_that_would_notice():
    rows = [line.strip("| ").split(" | ") for line in DEFECTS.splitlines() if re.match(r"\| B\d+ \|", line)]
    assert [row[0] for row in rows] == [f"B{number}" for number in range(1, 28)]
    for row in rows:
        named = set(re.findall(r'"([^"]+)"', row[-1]))
        assert named <= {plant.name for plant in PLANTS}, row[0]
        assert named >= {plant.name for plant in PLANTS if plant.reference == row[0]}, row[0]
        assert named or "`tests/" in row[-1], row[0]


def test_the_owners_table_of_attacks_is_right():
    for epsilon, rare, often in ((1, "0.24 %", "2.0 %"), (10, "14 %", "37 %")):
        mu = mu_for_epsilon(epsilon, 1e-5)
        rates = [100 * norm.cdf(norm.ppf(false) + mu) for false in (0.001, 0.01)]
        assert f"| ε = {epsilon} | {rare} | {often} |" in PRIVACY
        assert rates == [pytest.approx(float(text.rstrip(" %")), rel=0.05) for text in (rare, often)]


def test_the_figures_for_several_images_of_one_person_are_right():
    mu = mu_for_epsilon(1.0, 1e-5)
    shown = [f"{round_up(epsilon_for_mu(images * mu, 1e-5), 2)}" for images in (2, 3, 5, 10)]
    sentence = "ε = {} for two images, {} for three, {} for five, {} for ten"
    assert sentence.format(*shown) in PRIVACY
