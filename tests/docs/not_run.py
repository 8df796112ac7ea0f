"""Commands of the documentation that no test can type, and why. Their syntax and their options are checked."""

import re

NOT_RUN = {
    r"docker ": "needs a Docker engine",
    r"kubectl ": "needs a Kubernetes cluster",
    r"sbatch |srun |apptainer ": "needs a cluster with Slurm",
    r"torchrun ": "trains for hours on several GPUs or machines; tests/cli/test_ranks.py trains over ranks",
    r"pip install |uv pip compile |\.venv/bin/pre-commit install": "asks a package index, and changes the environment",
    r"hf auth login|datalens jobs push \S+ --repo ": "needs an account at Hugging Face; tests/integrations/test_hub.py",
    r"python -m benchmarks": "measures for minutes to days; tests/test_benchmarks.py",
    r"scripts/(test( --fast)?|check)$|\.ci/matrix$|\.venv/bin/python -m pytest ": "is what runs these tests",
    r"scripts/(inventory|docs)\b": "run by .ci/run; by tests/browser/test_site.py",
    r"scripts/(soak|chaos|schemathesis|privacy-gate)\b": "looks for rare events for minutes to days",
    r"(\.venv/bin/)?python -m api\.documents$": "changes files; tests compare them with its output",
    r"(scripts/|datalens )demo\b": "trains for two minutes on two cores; tests/cli/test_demo.py, with fewer votes",
    r"datalens serve --root-path ": "serves below a proxy; tests/cli/test_behind_a_proxy.py",
    r"datalens serve --data-dir /srv/": "writes outside of the folder; served without the option on the same page",
    r"datalens (COMMAND --help|--install-completion)$": "stands for all commands; changes the reader's shell",
    r"datalens audits submit$": "names the command, which then asks for a data set or a job",
    r"python -m workers\.(run_job|process)\b": "what services and workers start; tests/workers and tests/contract",
    r"celery (inspect|control)$": "named because it does not work",
}


def find_reason(command: str) -> str | None:
    """Why a command is not typed; None for one that is."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), None)
