"""The whole way at a terminal: from a wanted accuracy to a partner, who verifies what they get, and the end of it."""

import io
import json
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.service import RunningService

Run = Callable[..., Any]
QUICK = ("--method", "moments", "--set", "subspace_dimensions=4", "--no-evaluation", "--accept-low-utility")


def get(url: str) -> bytes:
    """What somebody without a key gets."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310 (a service of these tests)
        return bytes(answer.read())


def release_by_a_second_person(datalens: Run, datalens_json: Run, service: RunningService, job_id: str) -> None:
    """Whoever submitted is refused, and gets nothing before."""
    decision = (job_id, "--reason", "Report read; agreed.")
    for command in (("release", *decision), ("withhold", *decision), ("download", job_id, "--out", "images.npz")):
        refused = datalens("jobs", *command, *service.access)
        assert refused.exit_code != 0
        assert "second person" in refused.output
    made = ("create", "--name", "Sue", "--role", "steward", "--data-dir", service.data_dir)
    steward = ("--url", service.url, "--api-key", datalens_json("keys", *made)["api_key"])
    withheld = datalens_json("jobs", "withhold", *decision, *steward)["approval"]
    assert (withheld["state"], withheld["reason"]) == ("withheld", "Report read; agreed.")
    shown = datalens("jobs", "release", *decision, *steward).stdout
    assert "succeeded, released\n" in shown
    assert "Report read; agreed.\n" in shown


def submit_for_an_accuracy(datalens: Run, datalens_json: Run, service: RunningService, dataset_id: str) -> str:
    """Ask for an accuracy, which submits nothing before somebody says yes to its ε."""
    asked = ("submit", dataset_id, "--accuracy", 60, *QUICK, "--synthetic-images", 40, *service.access)
    # Other tests have jobs in the same service.
    before = datalens_json("jobs", "list", *service.access)["items"]
    unanswered = datalens("jobs", *asked)
    assert unanswered.exit_code == 2
    for part in ("is expected to reach 60 %", "a coin gets 50", "--yes"):
        assert part in unanswered.stderr
    assert datalens_json("jobs", "list", *service.access)["items"] == before
    planned = datalens_json("jobs", *asked, "--dry-run")
    job = datalens_json("jobs", *asked, "--yes", "--wait", "--release", "after_approval")
    assert job["privacy"]["epsilon_limit"] == planned["target"]["epsilon"] != 1
    return str(job["id"])


def test_an_accuracy_is_wanted_and_a_partner_gets_one_release_verifies_it_and_takes_500_images_of_one_class(
    datalens: Run, datalens_json: Run, service: RunningService, npz: Path, tmp_path: Path
) -> None:
    asked = ("upload", "--confirm-classes", npz, "--epsilon", 10)
    dataset_id = datalens_json("datasets", *asked, *service.access)["id"]
    job_id = submit_for_an_accuracy(datalens, datalens_json, service, dataset_id)
    release_id = job_id.replace("job", "gen", 1)
    release_by_a_second_person(datalens, datalens_json, service, job_id)
    for file in ("evidence", "registry"):
        assert datalens("jobs", file, job_id, "--out", tmp_path / file, *service.access).exit_code == 0
    assert "EDPB" in (tmp_path / "evidence").read_text()
    assert "tier: 3" in (tmp_path / "registry").read_text()
    assert release_id in [one["id"] for one in datalens_json("releases", "list", *service.access)["items"]]
    label = ("--title", f"Shapes of {job_id}", "--license", "CC-BY-4.0")
    datalens_json("releases", "label", job_id, *label, *service.access)
    shown = datalens("releases", "show", f"Shapes of {job_id}", *service.access).stdout
    assert "a coin gets 50" in shown
    made = ("share", release_id, "--partner", "Northern Clinic", "--days", 30)
    url = datalens("releases", *made, *service.access).stdout.strip()
    assert url.startswith(f"{service.url}/shared/")
    assert f"Shapes of {job_id}".encode() in get(url)
    archive = tmp_path / "release.zip"
    archive.write_bytes(get(f"{url}/archive"))
    key = json.loads(get(f"{service.url}/v1/signing-key"))["public_key"]
    verified = datalens("verify", "--key", key, archive)
    assert verified.exit_code == 0, verified.output
    with zipfile.ZipFile(io.BytesIO(get(f"{url}/images?format=imagefolder&synthetic_images=40"))) as packed:
        first = next(name for name in packed.namelist() if name.endswith(".png"))
        packed.extract(first, tmp_path)
    known = datalens("verify", tmp_path / first, "--release", archive)
    assert known.exit_code == 0, known.output
    (tmp_path / "one.npz").write_bytes(get(f"{url}/images?format=npz&classes=1&synthetic_images=500"))
    with np.load(tmp_path / "one.npz") as images:
        assert images["train_labels"].tolist() == [1] * 500
    [link] = datalens_json("releases", "links", release_id, *service.access)["items"]
    assert (link["partner"], link["ended"]) == ("Northern Clinic", False)
    assert link["last_used_at"] is not None
    datalens_json("releases", "revoke", link["id"], "--yes", *service.access)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(url)
