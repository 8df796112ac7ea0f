"""A method of another package: requests may name it, the contract is a command, and what leaves names the package."""

import json
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.plugins import PluginOrigin
from datalens_service.base.signatures import SigningKey
from datalens_service.contracts.methods import check_method
from datalens_service.data.export.pages import guarantee
from datalens_service.methods import DataLens, DpSgd, Method, Mixture
from datalens_service.proof.proof_verification import verify
from datalens_service.report.build import owner_view, releasable_view
from datalens_service.report.card import card
from datalens_service.report.html import page
from example_proof import EXAMPLE_PROOF
from tests.evaluation.conftest import report as finished_report
from tests.extensions.installed import Installed

METHODS = """
from dataclasses import replace
from typing import Literal

from datalens_service.methods.sums.moments import Moments, class_vectors


class Tilted(Moments):
    facts = replace(Moments.facts, title="Tilted")
    name: Literal["tilted"] = "tilted"


def centred_vectors(rows, measured):
    grouped = class_vectors(rows, measured)
    return grouped._replace(values=grouped.values - grouped.values.mean(axis=0))


class Centred(Moments):
    facts = replace(Moments.facts, title="Centred")
    name: Literal["centred"] = "centred"

    def run(self, plan, records, inputs):
        script, released = super().run(plan, records, inputs), None
        while True:
            try:
                ask = script.send(released)
            except StopIteration as ended:
                return ended.value
            if ask.contribution is class_vectors:
                ask = ask._replace(contribution=centred_vectors)
            released = yield ask


class Second(Moments):
    name: Literal["moments"] = "moments"


class Twin(Moments):
    facts = Moments.facts
    name: Literal["twin"] = "twin"
"""

EARLIER = """
from typing import Literal

from datalens_service.methods.base import Method


class Earlier(Method):
    name: Literal["earlier"] = "earlier"

    def create_run(self, plan, dataset, randomness, options):
        raise NotImplementedError
"""
# As somebody wrote it for a version whose methods stated less.
LACKING = """
from typing import Literal

from datalens_service.methods.facts import Facts
from datalens_service.methods.sums.moments import Moments


class Lacking(Moments):
    facts = Facts(title="Lacking", summary="noisy means", result="generator", public_images=None, levels=None)
    name: Literal["lacking"] = "lacking"
"""


# Several commands in one process, in which the module of the plug-in is imported first.
COMMANDS = """
import json, sys
import shop_methods
from typer.testing import CliRunner
from datalens_service.cli.app import app

done = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path, "shop_methods", METHODS)


def check(name: str) -> tuple[str, ...]:
    return ("plugins", "check", name, "--set", "subspace_dimensions=4")


def test_a_job_names_it_its_proof_names_the_package_and_the_command_tries_the_contract(
    installed: Installed, tmp_path: Path
) -> None:
    installed.offer("methods", tilted="Tilted", centred="Centred")
    rng, labels = np.random.default_rng(3), np.arange(60) % 2
    np.savez(tmp_path / "a.npz", train_images=rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), train_labels=labels)
    chosen = ("--method", "tilted", "--set", "subspace_dimensions=4", "--no-evaluation", "--synthetic-images", "20")
    train = ("train", "--data", "a.npz", "--epsilon", "1", "--out", "out", "--confirm-classes", *chosen)
    ran = installed.run("-c", COMMANDS, json.dumps([train, check("tilted"), check("centred")]))
    assert ran.returncode == 0, ran.stderr
    trained, good, leaking = json.loads(ran.stdout)
    assert trained[0] == 0, trained
    card = json.loads((tmp_path / "out" / "privacy.json").read_text())["card"]
    assert (card["method"], card["plugin"]) == ("tilted", {"distribution": "shop-methods", "version": "1.2"})

    assert good[0] == 0, good
    assert good[1].count("holds") == len(good[1].splitlines()) == 9
    assert leaking[0] == 1
    broken = [line for line in leaking[1].splitlines() if line.startswith("broken")]
    assert any("what others contribute: step 1, moments.means" in line for line in broken)


def test_a_method_of_the_product_is_not_replaced(installed: Installed) -> None:
    installed.offer("methods", moments="Second")
    refused = installed.run("-m", "datalens_service.cli", *check("moments"))
    assert refused.returncode != 0
    assert "has the name of a method of this product" in refused.stderr


def test_a_method_with_the_title_of_another_is_refused(installed: Installed) -> None:
    installed.offer("methods", twin="Twin")
    refused = installed.run("-m", "datalens_service.cli", *check("twin"))
    assert refused.returncode != 0
    assert "has the title of a method of this product: Moments" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        (EARLIER, "earlier", ("The plug-in earlier does not import", "does not state its facts", "docs/integrations")),
        (LACKING, "lacking", ("The plug-in lacking does not import", "'memory', 'measured_as', and 'image_seconds'")),
    ],
)
def test_a_method_that_lacks_facts_is_refused_in_words(
    tmp_path: Path, source: str, name: str, words: tuple[str, ...]
) -> None:
    installed = Installed(tmp_path, "other_methods", source)
    installed.offer("methods", **{name: name.capitalize()})
    refused = installed.run("-m", "datalens_service.cli", *check(name))
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert all(one in " ".join(refused.stderr.split()) for one in words), refused.stderr


def test_the_verifier_says_what_rests_on_the_package() -> None:
    proof = json.loads(json.dumps(EXAMPLE_PROOF))
    proof["card"]["plugin"] = {"distribution": "shop-methods", "version": "1.2"}
    verdict = verify(json.dumps(SigningKey(b"example").sign(proof)).encode())
    assert verdict.holds
    assert "plug-in of shop-methods 1.2" in verdict.not_verified[0]
    proof["plan"][0]["mechanism"]["name"] = "tilted_sum"
    assert not verify(json.dumps(SigningKey(b"example").sign(proof)).encode()).holds


def test_what_leaves_names_the_package() -> None:
    report = finished_report()
    plugin = PluginOrigin(distribution="shop-methods", version="1.2")
    foreign = report.model_copy(update={"method": report.method.model_copy(update={"plugin": plugin})})
    assert card(foreign)["plugin"] == {"distribution": "shop-methods", "version": "1.2"}
    assert "plug-in of shop-methods 1.2" in "".join(guarantee(card(foreign)))
    for view in (owner_view(foreign), releasable_view(foreign)):
        assert view["method"]["plugin"]["distribution"] == "shop-methods"
        assert "the tests of this product do not cover it" in page(view, None)
    assert "plugin" not in card(report)
    assert "plugin" not in json.dumps(releasable_view(report)["method"])


VOTES = DataLens(num_teachers=6, images_per_step=4, steps=2, z_dim=4, top_k=5, threshold="none")
OWN: tuple[Method, ...] = (
    Mixture(components=2, iterations=1, subspace_dimensions=4),
    DpSgd(architecture="linear", steps=3, sampling="poisson", batch=9, noise_multiplier=2.0),
    VOTES,
)


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)
def test_the_contract_raises_no_alarm_on_methods_of_the_product(method: Method) -> None:
    findings = list(check_method(method, steps=2))
    assert len(findings) >= 5
    assert [finding for finding in findings if finding.complaint] == []
