"""What a method states of itself has no default, and whatever lists methods is made of it."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, Literal

import pytest

from datalens_service.cli.option_groups import complete_help
from datalens_service.methods import Moments
from datalens_service.methods.facts import Facts
from datalens_service.methods.registered import list_methods
from datalens_service.planning.presets import PRESETS
from datalens_service.spec import TrainingSpec
from repository import ROOT

METHODS = {kind.model_fields["name"].default: kind.facts for kind in list_methods()}


def test_a_method_without_facts_does_not_import() -> None:
    with pytest.raises(TypeError, match=r"other does not state its facts: docs/integrations\.md"):

        class Other(Moments):
            name: Literal["other"] = "other"


@pytest.mark.parametrize("fact", fields(Facts), ids=lambda fact: fact.name)
def test_no_fact_may_be_left_out(fact: Any) -> None:
    assert (fact.default, fact.default_factory) == (MISSING, MISSING)
    stated = vars(Moments.facts) | {}
    del stated[fact.name]
    with pytest.raises(TypeError, match=fact.name):
        Facts(**stated)


def test_a_method_of_another_name_states_its_own_facts() -> None:
    class Other(Moments):
        facts = replace(Moments.facts, title="Other")
        name: Literal["other"] = "other"

    class Settled(Other):
        center: float = 0.5

    assert (Settled().facts.title, Settled().facts.summary) == ("Other", Moments.facts.summary)


@pytest.mark.parametrize("name", METHODS)
def test_facts_agree_with_each_other(name: str) -> None:
    facts = METHODS[name]
    assert facts.measured_as in METHODS
    assert facts.summary
    assert not facts.summary.endswith(".")
    assert (facts.image_seconds == 0) == (facts.result == "classifier")
    assert facts.levels is None or facts.result == "generator"


def test_help_names_every_method_and_preset_and_the_api_every_use_of_public_images() -> None:
    text = complete_help("{methods} {presets}")
    described = str(TrainingSpec.model_fields["public_data"].description)
    for name, facts in METHODS.items():
        assert f"- {name}: {facts.summary}" in text
        assert (f"`{name}`" in described) == (facts.public_images is not None)
    assert all(name in text for name in PRESETS)


def test_the_page_of_methods_says_what_they_say() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs/methods.md").read_text(), re.M)
    stated = {name: facts.summary for name, facts in METHODS.items()}
    assert dict(rows) == stated, "give each method a row of docs/methods.md with its name and summary"


def test_nothing_but_the_registry_lists_methods() -> None:
    """Of those whose names are no other words of the product's, two in one literal or text are a list."""
    rare = re.compile(r"\b(pooled_moments|labelled_moments|labelled_pool|public_votes|private_evolution|dp_sgd)\b")
    paths = itertools.chain(*((ROOT / room).rglob("*.py") for room in ("datalens_service", "api", "workers")))
    listed = {path.name: found for path in paths if (found := list(_find_lists(ast.parse(path.read_text()), rare)))}
    assert listed == {}


def _find_lists(tree: ast.Module, rare: re.Pattern[str]) -> Iterator[set[str]]:
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.Dict | ast.Set | ast.Tuple | ast.List) and id(node) not in described:
            words = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            if len(found := set(rare.findall(" ".join(map(str, words))))) > 1:
                yield found
