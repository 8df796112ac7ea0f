"""`datalens verify IMAGE`, and the files for signer and registry, as somebody types them."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from cli.service import RunningService
from datalens_service.cli.failures import ExitCode

Run = Callable[..., Any]


def test_an_image_is_looked_up_and_a_job_hands_out_evidence_and_entry(
    datalens: Run, datalens_json: Run, service: RunningService, npz: Path, tmp_path: Path
) -> None:
    uploaded = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 4, *service.access)
    options = ("--epsilon", 1, "--method", "moments", "--synthetic-images", 4, "--no-evaluation", "--wait")
    job = datalens_json("jobs", "submit", uploaded["id"], *options, *service.access)["id"]

    datalens_json("jobs", "download", job, "--bundle", "--format", "imagefolder", "--out", "r.zip", *service.access)
    datalens_json("jobs", "download", job, "--format", "imagefolder", "--out", "images.zip", *service.access)
    with zipfile.ZipFile(tmp_path / "images.zip") as archive:
        name = next(one for one in archive.namelist() if one.endswith(".png"))
        (tmp_path / "image.png").write_bytes(archive.read(name))
    assert "It is marked as synthetic." in datalens("verify", "image.png").stdout
    with Image.open(tmp_path / "image.png") as picture:
        picture.save(tmp_path / "bare.png")

    bare = datalens("verify", "bare.png")
    assert bare.exit_code == ExitCode.JOB_FAILED
    assert "No mark was found. That proves nothing" in bare.stdout
    found = datalens_json("verify", "bare.png", "--release", "r.zip", "--ask-service", *service.access)
    lines = {line["mark"]: line for line in found["lines"]}
    assert (lines["release"]["status"], lines["service"]["status"]) == ("found", "found")
    assert job in lines["service"]["finding"]
    wrong = datalens("verify", "bare.png", "--key", "0" * 64)
    assert wrong.exit_code == ExitCode.BAD_INPUT
    assert "--key is about proofs and reports" in wrong.stderr

    owners = datalens_json("jobs", "evidence", job, "--out", "evidence.html", *service.access)
    shared = datalens_json("jobs", "evidence", job, "--releasable", "--out", "shared.html", *service.access)
    assert (owners["audience"], shared["audience"]) == ("owner", "anyone")
    assert (tmp_path / "evidence.html").stat().st_mode & 0o077 == 0
    assert "Of a lifetime budget" in (tmp_path / "evidence.html").read_text()
    datalens_json("jobs", "registry", job, "--out", "entry.yaml", *service.access)
    assert yaml.safe_load((tmp_path / "entry.yaml").read_text())["tier"] == 3
