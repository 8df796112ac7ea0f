"""Start a service, upload digits, train, and download the synthetic images: the whole way over HTTP.

    python examples/serve_and_download.py [FOLDER]

Against a service that runs already, all you need is the middle part, with its address and your key.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import datalens_service as datalens


def main(folder: Path) -> None:
    """Serve from `folder`, and download into it."""
    folder.mkdir(parents=True, exist_ok=True)
    upload = digits_as_npz(folder / "digits.npz")
    with serving(folder / "data") as (url, api_key), datalens.Client(url, api_key) as client:
        # The class names are ten digits, which may be public; of other images, look at `dataset.review` first.
        dataset = client.upload_dataset(upload, epsilon=2.0, name="digits", confirm_classes=True)
        spec = {"method": "moments", "epsilon": 1.0, "evaluation": {"enabled": False}}
        print(f"price: epsilon {client.plan(dataset.id, spec).cost.epsilon_at_plan}")

        job = client.wait(client.submit(dataset.id, spec), lambda job: print(job.state, job.phase or ""))
        if job.state != "succeeded":
            sys.exit(f"the job {job.state}: {job.error}")

        client.download(job.id, folder / "synthetic.parquet", format="parquet", synthetic_images=2_000)
        client.download_samples(job.id, folder / "samples.png")
        client.download_report(job.id, folder / "report.html")
        left = client.dataset(dataset.id).privacy.epsilon_remaining
        print(f"2,000 synthetic images in {folder}; epsilon {left} of 2 is left")


def digits_as_npz(path: Path) -> Path:
    """Scikit-learn's digits in the keys of MedMNIST."""
    _, train, _ = datalens.digits()
    np.savez_compressed(path, train_images=train.images, train_labels=train.labels)
    return path


@contextmanager
def serving(data_dir: Path) -> Generator[tuple[str, str]]:
    """`datalens serve` on a free port; address and key."""
    port = str(free_port())
    command = [sys.executable, "-m", "datalens_service.cli", "serve", "--port", port, "--data-dir", str(data_dir)]
    environment = {**os.environ, "DATALENS_LOG_LEVEL": "warning"}
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603
        try:
            lines = iter(process.stdout or ())
            text = ""
            while not text.endswith("\n}\n"):
                text += next(lines)
            yield json.loads(text)["url"], (data_dir / "api-key").read_text().strip()
        finally:
            process.terminate()


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to connections."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="datalens-")))
