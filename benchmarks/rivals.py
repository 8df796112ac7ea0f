"""One job of each rival over HTTP, and `datalens verify` on the release that it hands out.

    python -m benchmarks.rivals --epsilon 10
    python -m benchmarks.rivals --methods gs_wgan g_pate

A service is started in a folder of its own; the preset of each method runs on MNIST, without evaluation. Prints JSON:
what the account was charged, how long the job took by the clock, and what the verification says. Exit code 1 if a job
fails or a proof does not hold.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import ROOT, data_path, provenance
from benchmarks.kept_results import print_result
from datalens_service.client import Client

METHODS: Final = ("g_pate", "gs_wgan", "pate_gan", "dp_gan")
_JOBS_PER_ACCOUNT: Final = 8
"""Budget of the dataset over that of a job; four jobs at the same ε need less than four times as much."""
_IMAGES: Final = 1000

# By its path: installed packages may bring a package named `examples`.
serving = runpy.run_path(str(ROOT / "examples" / "serve_and_download.py"))["serving"]


def job(client: Client, dataset_id: str, method: str, epsilon: float, folder: Path) -> dict[str, Any]:
    """Submit one, wait, download its release, verify it."""
    spec = {
        "preset": method, "epsilon": epsilon, "synthetic_images": _IMAGES, "evaluation": {"enabled": False},
    }  # fmt: skip
    started = time.monotonic()
    finished = client.wait(client.submit(dataset_id, spec))
    seconds = time.monotonic() - started
    row = {"preset": method, "state": finished.state, "seconds": round(seconds, 1)}
    if finished.state != "succeeded":
        return row | {"error": str(finished.error), "holds": False}
    path = client.download_bundle(finished.id, folder / f"{method}.zip", format="npz", license="CC0-1.0")
    return row | {"epsilon_spent": finished.privacy.epsilon_spent, **verified(path)}


def verified(path: Path) -> dict[str, Any]:
    """What `datalens verify` says of a release, and its exit code."""
    command = [sys.executable, "-m", "datalens_service.cli", "verify", str(path), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    verdict = json.loads(answer.stdout)
    checks = {line["check"]: line["status"] for line in verdict["lines"]}
    return {"holds": answer.returncode == 0, "exit_code": answer.returncode, "checks": checks}


def measure(methods: list[str], dataset: str, epsilon: float) -> list[dict[str, Any]]:
    """One job after the other, all on the account of one dataset."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder / "data") as (url, key), Client(url, key) as client:
            uploaded = client.upload_dataset(
                data_path(dataset), epsilon=_JOBS_PER_ACCOUNT * epsilon, confirm_classes=True
            )
            return [job(client, uploaded.id, method, epsilon, folder) for method in methods]


def main() -> None:
    """Run the jobs and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--epsilon", type=float, default=10.0)
    options = parser.parse_args()
    origin = provenance()
    jobs = measure(options.methods, options.dataset, options.epsilon)
    print_result({**origin, "dataset": options.dataset, "epsilon": options.epsilon, "jobs": jobs})
    sys.exit(not all(job["holds"] for job in jobs))


if __name__ == "__main__":
    main()
