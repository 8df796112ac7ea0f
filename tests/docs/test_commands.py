"""Every command of README, CONTRIBUTING and the pages runs as it is typed, or is listed with the reason why not.

`rehearsal.py` has the rules for what a page leaves to its reader, `stand_ins.py` its files, `commands.py` the list.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import create_autospec

import huggingface_hub
import pytest
import yaml

from deployments.postgresql import TEMPLATE, Cluster
from deployments.redis import Redis
from tests.cli.service import RunningService
from tests.docs.commands import (
    LANGUAGES,
    NOT_RUN,
    ROOT,
    Command,
    find_reason,
    find_syntax_error,
    list_pages,
    read_blocks,
    read_commands,
)
from tests.docs.known_words import find_unknown_words, lacks_arguments, list_benchmark_options, list_options
from tests.docs.rehearsal import SERVES, Access, Rehearsal
from tests.extensions.installed import Installed

PAGES = list_pages()
# Options of other programs that sentences name.
OTHER_OPTIONS = {"--build-arg", "--faults", "--ready", "--requeue"}
PLUGIN = """
from dataclasses import replace
from typing import Literal

from datalens_service.methods.sums.moments import Moments


class Tilted(Moments):
    facts = replace(Moments.facts, title="Tilted")
    name: Literal["tilted"] = "tilted"
    steps: int = 1


def extract(images):
    return images.reshape(len(images), -1).astype("float32")
"""


def typed(page: str) -> list[Command]:
    """What can be typed as it is; a name of a command alone is none where it needs more words."""
    return [
        command
        for command in read_commands(page)
        if not find_reason(command.text)
        and not (command.language == "span" and (SERVES.match(command.text) or is_name(command.text)))
    ]


def is_name(span: str) -> bool:
    return span.startswith("datalens") and lacks_arguments(span)


TYPED = {page: commands for page in PAGES if (commands := typed(page))}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """For all pages that start none."""
    running = RunningService(tmp_path_factory.mktemp("service") / "data")
    yield running
    running.stop()


@pytest.fixture
def access(request: pytest.FixtureRequest, page: str) -> Access | None:
    """To the service; None for a page that starts one."""
    if any(re.match("datalens serve", command.text) for command in TYPED[page]):
        return None
    service: RunningService = request.getfixturevalue("service")
    return Access(service.url, service.api_key, service.data_dir)


@pytest.fixture
def settings(request: pytest.FixtureRequest, page: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Servers around a service whose workers are Celery's; nothing for all other pages."""
    if not any(command.text.startswith("celery") for command in TYPED[page]):
        yield {}
        return
    cluster: Cluster = request.getfixturevalue("postgresql")
    redis = Redis(tmp_path, "secret")
    redis.serve()
    servers = {"DATABASE_URL": cluster.new_database(TEMPLATE), "BROKER_URL": redis.url, "EXECUTOR": "celery"}
    yield {f"DATALENS_{name}": value for name, value in servers.items()}
    redis.kill()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's: Hugging Face's client with nothing behind it."""
    api = create_autospec(huggingface_hub.HfApi, instance=True)
    api.create_repo.return_value.repo_id = "owner/digits"
    commit = create_autospec(huggingface_hub.CommitInfo, instance=True, commit_url="https://hub/owner/digits")
    api.upload_folder.return_value = commit
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: api)


@pytest.fixture
def plugin(tmp_path: Path) -> None:
    """A package with the method and the extractor of the pages."""
    package = Installed(tmp_path, "my_package", PLUGIN)
    package.offer("methods", tilted="Tilted")
    package.offer("extractors", edges="extract")


@pytest.mark.usefixtures("hub", "plugin")
@pytest.mark.parametrize("page", TYPED)
def test_every_command_of_a_page_runs_as_it_is_typed(
    page: str, access: Access | None, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    rehearsal = Rehearsal(tmp_path, TYPED[page], access, settings)
    try:
        for command in TYPED[page]:
            rehearsal.type(command)
        rehearsal.check_outcomes()
    finally:
        rehearsal.close()


def test_every_command_has_the_form_and_the_words_that_its_program_knows():
    wrong = {}
    for page in PAGES:
        for command in read_commands(page):
            if command.language == "python":
                compile(command.text, page, "exec")
            elif command.language == "bash" and (error := find_syntax_error(command.text)):
                wrong[str(command)] = error
            elif unknown := find_unknown_words(command.text):
                wrong[str(command)] = str(unknown)
    assert wrong == {}


def test_every_block_says_its_language_and_data_can_be_read():
    readers = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    for page in PAGES:
        for block in read_blocks(page):
            assert block.language in LANGUAGES, f"{page}:{block.line}"
            readers.get(block.language, str)(block.text)


def test_options_that_sentences_name_exist():
    assert {page: unknown for page in PAGES if (unknown := unknown_options((ROOT / page).read_text()))} == {}


def unknown_options(text: str) -> set[str]:
    """Options that neither datalens nor a named benchmark has; one that ends with a dash stands for several."""
    known = list_options() | OTHER_OPTIONS
    for benchmark in re.findall(r"-m (benchmarks[\w.]*)", text):
        known |= list_benchmark_options(benchmark)
    named = set(re.findall(r"(?<!`)`(--[\w-]+)", text))
    return {name for name in named - known if name[-1] != "-" or not any(one.startswith(name) for one in known)}


def test_no_reason_is_given_for_a_command_that_is_on_no_page():
    commands = [command.text for page in PAGES for command in read_commands(page)]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, text) for text in commands)] == []
