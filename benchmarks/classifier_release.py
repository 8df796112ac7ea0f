"""A classifier over REST and over the command line, a generator on the same records, and what can be verified of both.

    python -m benchmarks.classifier_release

A service is started in a folder of its own. On MNIST, one account: a job of the preset `classifier` over REST at ε, the
same over the command line, and a job of images. Prints JSON: what onnxruntime makes of the downloaded graphs on the
test images, what the owner's report and the releasable one say, what the account was charged for all three, and what
`datalens verify` says of each release. Exit code 1 if a job fails or a proof does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.environment import data_path, dataset, provenance
from benchmarks.kept_results import print_result
from benchmarks.rivals import serving, verified
from datalens_service.client import Client
from datalens_service.privacy.accounting import epsilon_of_units, limit_units

DELTA = 1e-5
JOBS = 3


def measure(name: str, epsilon: float, preset: str, images: int) -> dict[str, Any]:
    """All three jobs on the account of one dataset."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        with serving(folder / "data") as (url, key), Client(url, key) as client:
            uploaded = client.upload_dataset(data_path(name), epsilon=JOBS * epsilon, delta=DELTA, confirm_classes=True)
            over_rest = _classifier_over_rest(client, uploaded.id, epsilon, folder)
            over_cli = _classifier_over_cli(("--url", url, "--api-key", key), uploaded.id, epsilon, folder)
            generator = _generator(client, uploaded.id, preset, epsilon, images, folder)
            account = client.dataset(uploaded.id).privacy
            return {
                "classifier_over_rest": over_rest | _of_graph(folder / "rest.onnx", name),
                "classifier_over_cli": over_cli | _of_graph(folder / "cli.onnx", name),
                "generator": generator,
                "account": {
                    "epsilon_spent": account.epsilon_spent,
                    "delta": DELTA,
                    "epsilon_of_three_such_jobs": epsilon_of_units(JOBS * limit_units(epsilon, DELTA), DELTA),
                },
            }


def _classifier_over_rest(client: Client, dataset_id: str, epsilon: float, folder: Path) -> dict[str, Any]:
    job = client.wait(client.submit(dataset_id, {"preset": "classifier", "epsilon": epsilon}))
    if job.state != "succeeded":
        return {"state": job.state, "error": str(job.error), "holds": False}
    client.download_classifier(job.id, folder / "rest.onnx", format="onnx")
    archive = client.download_classifier(job.id, folder / "rest.zip", format="archive", license="CC0-1.0")
    owners, others = (client.report(job.id, audience=audience) for audience in ("owner", "releasable"))
    return {
        "state": job.state,
        "epsilon_spent": job.privacy.epsilon_spent,
        "measures_for_the_owner": [one["name"] for one in owners["measures"]],
        "test_images_in_the_confusion_table": sum(map(sum, owners["confusion"]["counts"])),
        "measures_for_others": [one["name"] for one in others["measures"]],
        **verified(archive),
    }


def _classifier_over_cli(service: tuple[str, ...], dataset_id: str, epsilon: float, folder: Path) -> dict[str, Any]:
    submitted = _datalens(
        "jobs", "submit", dataset_id, "--preset", "classifier", "--epsilon", str(epsilon), "--wait", *service
    )
    for form, more in (("onnx", ()), ("zip", ("--bundle",))):
        path = str(folder / f"cli.{form}")
        _datalens("jobs", "download", submitted["id"], "--format", "onnx", *more, "--out", path, *service)
    with zipfile.ZipFile(folder / "cli.zip") as archive:
        files = sorted(archive.namelist())
    return {"state": submitted["state"], "files": files, **verified(folder / "cli.zip")}


def _generator(
    client: Client, dataset_id: str, preset: str, epsilon: float, images: int, folder: Path
) -> dict[str, Any]:
    spec = {"preset": preset, "epsilon": epsilon, "synthetic_images": images, "evaluation": {"enabled": False}}
    job = client.wait(client.submit(dataset_id, spec))
    if job.state != "succeeded":
        return {"state": job.state, "error": str(job.error), "holds": False}
    path = client.download_bundle(job.id, folder / "images.zip", format="npz", license="CC0-1.0")
    return {"preset": preset, "state": job.state, "epsilon_spent": job.privacy.epsilon_spent, **verified(path)}


def _of_graph(path: Path, name: str) -> dict[str, Any]:
    """What onnxruntime says of the test images, alone with the file."""
    test = dataset(name).test
    if test is None:
        raise SystemExit("the dataset has no test split")
    graph = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (probabilities,) = graph.run(None, {graph.get_inputs()[0].name: test.images})
    right = np.mean(probabilities.argmax(axis=1) == test.labels)
    return {"onnxruntime": onnxruntime.__version__, "accuracy_by_onnxruntime": round(100 * float(right), 2)}


def _datalens(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "datalens_service.cli", *arguments, "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(f"datalens {' '.join(arguments[:2])} failed: {answer.stdout}{answer.stderr}")
    return dict(json.loads(answer.stdout))


def main() -> None:
    """Run the jobs and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--preset", default="fast", help="of the job of images")
    parser.add_argument("--images", type=int, default=1000)
    options = parser.parse_args()
    origin = provenance()
    jobs = measure(options.dataset, options.epsilon, options.preset, options.images)
    print_result({**origin, "dataset": options.dataset, "epsilon": options.epsilon, **jobs})
    sys.exit(not all(jobs[one]["holds"] for one in ("classifier_over_rest", "classifier_over_cli", "generator")))


if __name__ == "__main__":
    main()
