"""The example of a privacy report in docs/examples: one real job of the preset `fast` on MNIST at ε = 1.

    python -m benchmarks.example_report

MNIST's test images are public, so that the copy for others holds figures as well. `scripts/docs` makes a page of it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.environment import ROOT, provenance, public_set
from datalens_service.cli import review
from datalens_service.cli.commands.train import train_upload
from datalens_service.cli.specs import SpecOptions
from datalens_service.data.intake.assembly import with_public_test

SETTINGS = ("evaluation.synthetic_images=2000", "evaluation.ceiling=false")
EXAMPLE = ROOT / "docs" / "examples" / "privacy-report.json"


def main() -> None:
    """Train, measure, and copy the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=EXAMPLE)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    os.environ["DATALENS_COMMIT"] = provenance()["commit"].rstrip("+")
    os.environ["DATALENS_CONTACT"] = "The data protection officer of the house that holds the images"
    upload = with_public_test(public_set("mnist"))
    asked = SpecOptions(epsilon=1.0, delta=1e-5, preset="fast", settings=[*SETTINGS, *options.settings])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result")
        train_upload(upload, "npz", asked, out, as_json=False, confirm=review.skip)
        shutil.copyfile(out / "report-releasable.json", options.out)


if __name__ == "__main__":
    main()
