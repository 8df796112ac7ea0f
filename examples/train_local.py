"""Train on scikit-learn's digits in this process and look at what came out. Takes some seconds.

python examples/train_local.py [FOLDER]
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path

import datalens_service as datalens
from datalens_service.data.export import WRITERS, WrittenImages, sample_grid


def main(folder: Path) -> None:
    """Train, sample, write an NPZ and a picture into `folder`."""
    schema, train, test = datalens.digits()
    # The key decides which record goes to which teacher; whoever does not know it cannot tell.
    dataset = datalens.Dataset(schema, train, test, partition_key=secrets.token_bytes(32))

    spec = datalens.TrainingSpec(method=datalens.preset("fast", schema, epsilon=2.0), epsilon=2.0)
    account = datalens.MemoryAccount(spec.limit_units(schema))
    result = datalens.run(spec, dataset, account=account)
    print(f"spent epsilon {result.cost.epsilon_at_plan} at delta {result.cost.delta}")

    # Sampling is post-processing: as many images as you like, at no cost.
    images, labels = result.generator.sample(5_000, seed=1)
    folder.mkdir(parents=True, exist_ok=True)
    card = {"cost": result.cost.model_dump(mode="json")}
    WRITERS["npz"].write(folder / "synthetic.npz", WrittenImages(images, labels, schema, card))
    (folder / "samples.png").write_bytes(sample_grid(images, labels, schema))
    result.generator.save(folder / "generator.safetensors")
    print(f"5,000 synthetic images in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="datalens-")))
