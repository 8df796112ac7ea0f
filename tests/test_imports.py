"""The contracts on imports: each is checked, and an import that breaks it is reported under its name."""

from copy import deepcopy
from pathlib import Path

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).parents[1]
PACKAGES = ("datalens_service", "api", "workers")
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
    (NO_CIRCLE, "evaluation.metrics.reference", "evaluation.evaluate"),
    (NO_CIRCLE, "client.models", "client.responses"),
    (NO_CIRCLE, "client.transport", "client.jobs"),
    (NO_CIRCLE, "cli.options", "cli.commands.train"),
    (METHODS, "methods.sums.mixture", "methods.voting.datalens"),
    (GENERATORS, "models.generators.outlines.outlines", "models.generators.denoiser.denoiser"),
    (NO_JOB, "api.rest.jobs", "jobs.execute"),
    (ONE_WAY, "cli.commands.serve", "api.main"),
    (ONE_WAY, "cli.commands.train", "workers.run_job"),
    (ONE_WAY, "models.teachers.base", "run"),
    (ONE_WAY, "services.pricing", "api.schemas.common"),
    (ONE_WAY, "proof.hash_chain", "store.tables"),
    (NO_DATABASE, "proof.job_proof", "sqlalchemy"),
]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Of all imports of the product."""
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


def is_kept(name: str, graph: grimp.ImportGraph) -> bool:
    """Whether imports are as a contract of this repository wants them."""
    configuration = read_configuration(str(ROOT / "pyproject.toml"))
    [options] = [one for one in configuration["contracts_options"] if one["name"] == name]
    contract = KINDS[options["type"]](name, configuration["session_options"], options)
    return bool(contract.check(deepcopy(graph), verbose=False).kept)


def module(name: str, graph: grimp.ImportGraph) -> str:
    """The full name of a module, of which `datalens_service` is left out."""
    return name if name in graph.modules else f"datalens_service.{name}"


@pytest.mark.parametrize("contract", sorted({contract for contract, _, _ in BROKEN}))
def test_an_import_that_breaks_a_contract_is_seen(graph: grimp.ImportGraph, contract: str):
    assert is_kept(contract, graph)
    for importer, imported in [(one, other) for name, one, other in BROKEN if name == contract]:
        changed = deepcopy(graph)
        names = module(importer, graph), module(imported, graph)
        assert set(names) <= graph.modules
        changed.add_import(importer=names[0], imported=names[1])
        assert not is_kept(contract, changed), names
