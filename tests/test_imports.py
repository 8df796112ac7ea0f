"""The contracts on imports: each is checked, and an import that breaks it is reported under its name."""

import ast
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from repository import ROOT, list_files

PACKAGE = "datalens_service"
KINDS = {"acyclic_siblings": AcyclicSiblingsContract, "forbidden": ForbiddenContract, "layers": LayersContract}

PRIVATE_RELEASED = "What is released knows nothing private"
NO_CIRCLE = "No circle of files or folders"
ONE_WAY = "Imports go one way"
METHODS = "Families of methods build on each other one way"
GENERATORS = "Families of generators build on each other one way"
NO_JOB = "The web API does no job"
NO_DATABASE = "A proof is checked without a database"
BROKEN = [
    (PRIVATE_RELEASED, "models.generators.gaussian.gaussian", "models.teachers.ensemble"),
    (PRIVATE_RELEASED, "models.trainer", "models.teachers.networks"),
    (PRIVATE_RELEASED, "models.adam", "models.teachers.kernel"),
    (NO_CIRCLE, "methods.voting.voting_method", "methods.voting.training_run"),
    (NO_CIRCLE, "methods.sums.moments", "methods.last_layer.guided"),
    (NO_CIRCLE, "models.adam", "models.trainer"),
    (NO_CIRCLE, "store.access.keys", "store.jobs.jobs"),
    (NO_CIRCLE, "store.schema.tables", "store.database"),
    (NO_CIRCLE, "base.errors", "base.settings"),
    (NO_CIRCLE, "data.dataset", "data.intake.assembly"),
    (NO_CIRCLE, "evaluation.metrics.reference", "evaluation.evaluate"),
    (NO_CIRCLE, "client.models", "client.responses"),
    (NO_CIRCLE, "client.transport", "client.jobs"),
    (NO_CIRCLE, "cli.options", "cli.commands.train"),
    (METHODS, "methods.sums.mixture", "methods.voting.datalens"),
    (GENERATORS, "models.generators.level_sets.outlines", "models.generators.denoiser.denoiser"),
    (NO_JOB, "api.rest.jobs", "jobs.execute"),
    (ONE_WAY, "cli.commands.serve", "api.main"),
    (ONE_WAY, "cli.commands.train", "workers.run_job"),
    (ONE_WAY, "models.teachers.base", "training"),
    (ONE_WAY, "services.pricing", "api.schemas.common"),
    (ONE_WAY, "proof.hash_chain", "store.schema.tables"),
    (ONE_WAY, "migrations.env", "store.schema.tables"),
    (ONE_WAY, "migrations.versions.rev_0027_job_totals", "store.schema.job_totals"),
    (ONE_WAY, "base.clock", "data.dataset"),
    (NO_DATABASE, "proof.job_proof", "sqlalchemy"),
]


ROOMS_BESIDE = {"api", "migrations", "workers"}


def find_roots(path: Path) -> set[str]:
    """Of all names that a file imports, the first parts."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    return {
        name.partition(".")[0]
        for name in [*plain, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))]
    }


def test_no_room_has_a_second_name() -> None:
    """Under two names, a module would be two, with two states and two kinds of each class."""
    roots = {name: find_roots(ROOT / name) for name in list_files() if name.endswith(".py")}
    assert {name for name, found in roots.items() if found & ROOMS_BESIDE} == set()
    assert roots["tests/test_imports.py"] >= {"ast", "importlinter"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Of all imports of the product."""
    return grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)


def read_contract(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of all contracts in `pyproject.toml`, and those of one."""
    configuration = read_configuration(str(ROOT / "pyproject.toml"))
    [options] = [one for one in configuration["contracts_options"] if one["name"] == name]
    return configuration["session_options"], options


def is_kept(name: str, graph: grimp.ImportGraph) -> bool:
    """Whether imports are as a contract of this repository wants them."""
    session, options = read_contract(name)
    contract = KINDS[options["type"]](name, session, options)
    return bool(contract.check(deepcopy(graph), verbose=False).kept)


def module(name: str, graph: grimp.ImportGraph) -> str:
    """The full name of a module, of which `datalens_service` is left out."""
    return name if name in graph.modules else f"{PACKAGE}.{name}"


@pytest.mark.parametrize("contract", sorted({contract for contract, _, _ in BROKEN}))
def test_an_import_that_breaks_a_contract_is_seen(graph: grimp.ImportGraph, contract: str):
    assert is_kept(contract, graph)
    for importer, imported in [(one, other) for name, one, other in BROKEN if name == contract]:
        changed = deepcopy(graph)
        names = module(importer, graph), module(imported, graph)
        assert set(names) <= graph.modules
        changed.add_import(importer=names[0], imported=names[1])
        assert not is_kept(contract, changed), names


def test_every_room_has_its_place_and_no_arrow_between_rooms_points_up(graph: grimp.ImportGraph):
    session, options = read_contract(ONE_WAY)
    assert session["root_packages"] == [PACKAGE]
    level = {room: number for number, layer in enumerate(options["layers"]) for room in layer.split(" | ")}
    homes = {name: [room for room in level if f"{name}.".startswith(f"{room}.")] for name in graph.modules}
    own = {name for name in graph.modules if name.startswith(f"{PACKAGE}.")} - {f"{PACKAGE}.migrations"}
    assert {name for name in own if len(homes[name]) != 1} == set()
    arrows = {
        (homes[name][0], homes[imported][0])
        for name in own
        for imported in graph.find_modules_directly_imported_by(name) & own
        if homes[name] != homes[imported]
    }
    assert len(arrows) > 100
    assert {arrow for arrow in arrows if level[arrow[0]] >= level[arrow[1]]} == set()
