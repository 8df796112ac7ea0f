"""What a reader of the documentation types: blocks of commands, and commands within sentences and tables.

A fence says its language. Of a block in `bash` every command is one; `console` has commands after `$ ` and, below each,
the exact answer; `python` is typed as a whole. Outside of the proofs an indented block is `bash`. A command within a
sentence is a code span that begins with one of `PROGRAMS` and lacks nothing.
"""

import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from repository import ROOT, list_files

LANGUAGES = {"bash", "console", "python", "json", "toml", "yaml", "ini", "nginx", "caddy", "sql", "text"}
PROGRAMS = re.compile(
    r"(scripts/|\.venv/bin/|\.ci/)\S+|(datalens|python|docker|kubectl|pip|sqlite3|uvicorn|celery|torchrun|hf) \S"
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?P<text>(?: {4}.*\n)+)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")

NOT_RUN = {
    r"docker ": "needs a Docker engine",
    r"kubectl ": "needs a Kubernetes cluster; tests/workers/test_kubernetes_files.py renders, and makes secrets",
    r"sudo ": "changes the machine; tests/test_systemd_units.py has systemd read the units",
    r"scripts/pin-images": "asks registries of images; tests/test_pinned_images.py",
    r"sbatch |srun |apptainer ": "needs a cluster with Slurm",
    r"torchrun ": "trains for hours on several GPUs or machines; tests/cli/test_ranks.py trains over ranks",
    r"pip install |uv pip compile |\.venv/bin/pre-commit install": "asks a package index, and changes the environment",
    r"datalens verify (image\.png|generator\.safetensors)": "needs an image of a release; tests/proof/test_marks.py",
    r"datalens encoders make ": "needs weights that others trained; tests/cli/test_encoders.py has weights of nobody",
    r"datalens verify account-proof\.json ": "needs an answer of an authority; tests/jobs/test_time_stamps.py",
    r"datalens jobs submit .*--accuracy ": "spends what it finds; tests/cli/test_releases.py",
    r"datalens (plugins check|train .*generator=)\s*diffusers\.": "needs a pipeline; test_diffusers_pipelines.py",
    r"npx ": "downloads a program from npm",
    r"hf auth login|datalens jobs push \S+ --repository ": "needs an account at Hugging Face; test_hub.py pushes",
    r"datalens jobs (release|withhold) ": "needs a second person; tests/cli/test_releases.py",
    r"python -m benchmarks": "measures for minutes to days; tests/test_benchmarks.py",
    r"scripts/(test( --fast)?|check)$|\.ci/(matrix|stranger|run)$|\.venv/bin/python -m pytest ": "runs these tests",
    r"scripts/(inventory|docs)\b": "run by .ci/run; by tests/browser/test_site.py",
    r"scripts/(soak|chaos|schemathesis|privacy-gate)\b": "looks for rare events for minutes to days",
    r"(\.venv/bin/)?python -m datalens_service\.api\.documents$": "changes files; tests compare them with its output",
    r"(scripts/|datalens )demo\b": "trains for two minutes on two cores; tests/cli/test_demo.py, with fewer votes",
    r"datalens serve --root-path ": "serves below a proxy; tests/cli/test_behind_a_proxy.py",
    r"datalens serve --data-dir /srv/": "writes outside of the folder; served without the option on the same page",
    r"datalens (COMMAND --help|--install-completion)$": "stands for all commands; changes the reader's shell",
    r"datalens audits submit$": "names the command, which then asks for a data set or a job",
    r"datalens plan$": "names the command, which then asks for ε, or for data and an accuracy",
    r"python -m datalens_service\.workers\.(run_job|process)\b": "what workers start; tests/workers, tests/contract",
    r"scripts/version\.py$": "tells the version of a checkout; tests/test_version.py",
    r"celery (inspect|control)$": "named because it does not work",
}
"""Commands that no test can type, and why. Their syntax and their options are checked."""


class Block(NamedTuple):
    """A block of code on a page."""

    line: int
    language: str
    text: str


class Command(NamedTuple):
    """One thing to type, and what the page says it answers."""

    page: str
    line: int
    language: str
    text: str
    answer: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def list_pages() -> list[str]:
    """The pages whose commands are typed; decisions are history."""
    pages = (name for name in list_files() if re.fullmatch(r"README\.md|CONTRIBUTING\.md|docs/.*\.md", name))
    return [name for name in pages if not name.startswith("docs/decisions/")]


def read_blocks(page: str) -> list[Block]:
    """All blocks of code, in order."""
    text = (ROOT / page).read_text()
    blocks = [
        Block(_line(text, found.start("text")), found["language"], found["text"]) for found in FENCE.finditer(text)
    ]
    if not page.startswith("docs/mechanisms/"):
        blocks += [
            Block(_line(text, found.start("text")), "bash", found["text"]) for found in INDENTED.finditer(_prose(text))
        ]
    return sorted(blocks)


def read_commands(page: str) -> list[Command]:
    """All that is typed: blocks first, then spans that are no repetition of them."""
    typed = [command for block in read_blocks(page) for command in list_commands(page, block)]
    known = {_bare(command.text) for command in typed}
    return [*typed, *(span for span in _spans(page) if span.text not in known)]


def split_commands(text: str) -> Iterator[tuple[int, str]]:
    """Complete commands of a script, each with the number of lines before it: bash says where one ends."""
    typed: list[str] = []
    for number, line in enumerate(text.splitlines()):
        if typed or (line.strip() and not line.lstrip().startswith("#")):
            typed.append(line)
            if not line.endswith("\\") and not find_syntax_error("\n".join(typed)):
                yield number + 1 - len(typed), "\n".join(typed)
                typed = []
    if typed:
        yield text.count("\n") - len(typed), "\n".join(typed)


def list_commands(page: str, block: Block) -> Iterator[Command]:
    """What is typed of one block."""
    if block.language == "python":
        yield Command(page, block.line, "python", block.text)
    elif block.language == "console":
        for one in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE):
            yield Command(page, block.line, "bash", one[1], one[2].strip())
    elif block.language == "bash":
        for before, text in split_commands(block.text):
            yield Command(page, block.line + before, "bash", text.strip())


def find_reason(command: str) -> str | None:
    """Why a command is not typed; None for one that is."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), None)


def find_syntax_error(command: str) -> str:
    """What bash objects to, or nothing."""
    return subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False).stderr


def _spans(page: str) -> Iterator[Command]:
    text = _prose((ROOT / page).read_text())
    for found in SPAN.finditer(text):
        words = " ".join(found[1].split())
        if PROGRAMS.match(words):
            yield Command(page, _line(text, found.start()), "span", words)


def _prose(text: str) -> str:
    """The text with fences blanked out, line by line."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _bare(command: str) -> str:
    return command.partition(" #")[0].strip()
