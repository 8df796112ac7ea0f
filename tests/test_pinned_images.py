"""scripts/pin-images compares, writes and prints the digests of registries; a stand-in for docker names them here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from other_programs import find_program
from repository import ROOT

FILES = ("docker-compose.yml", "Dockerfile", "deploy/kubernetes/components/backups/cronjob.yaml")
DIGEST = re.compile(r"([a-z/]+:[\w.-]+)@(sha256:[0-9a-f]{64})")
OTHER = f"sha256:{'5' * 64}"
# `docker buildx imagetools inspect TAG --format …`
DOCKER = """#!/bin/sh
[ "$1 $2 $3 $5 $6" = "buildx imagetools inspect --format {{.Manifest.Digest}}" ] || exit 9
grep -F "$4@" known | sed 's/.*@//' | grep . || echo "$ELSE"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "scripts").mkdir()
    for name in ("docker-compose.yml", "Dockerfile", "scripts/pin-images"):
        shutil.copy(ROOT / name, tmp_path / name)
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    images = {f"{tag}@{digest}" for name in FILES for tag, digest in DIGEST.findall((tmp_path / name).read_text())}
    assert len(images) == 3
    (tmp_path / "known").write_text("\n".join(images) + "\n")
    return tmp_path


def pin(checkout: Path, *arguments: str, otherwise: str = OTHER) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{checkout}:{os.environ['PATH']}", "ELSE": otherwise}
    command = [str(checkout / "scripts" / "pin-images"), *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def test_equal_digests_are_named(checkout: Path) -> None:
    done = pin(checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == set((checkout / "known").read_text().split())


@pytest.mark.parametrize("change", ["digest", "none"])
def test_another_digest_is_told_and_written_if_one_asks(checkout: Path, change: str) -> None:
    compose = checkout / "docker-compose.yml"
    before = compose.read_text()
    wrong = "" if change == "none" else f"@{OTHER}"
    compose.write_text(re.sub(r"(valkey/valkey:[\w.-]+)@sha256:\w+", rf"\1{wrong}", before))
    done = pin(checkout)
    assert done.returncode == 1
    assert re.fullmatch(rf"valkey/valkey:[\w.-]+{wrong}: the registry says sha256:\w+\n", done.stderr)
    assert pin(checkout, "--write").returncode == 0
    assert compose.read_text() == before
    assert pin(checkout).returncode == 0


def test_a_registry_without_a_digest_changes_nothing(checkout: Path) -> None:
    (checkout / "known").write_text("")
    before = {name: (checkout / name).read_text() for name in FILES}
    done = pin(checkout, "--write", otherwise="<nil>")
    assert done.returncode != 0
    assert "the registry names no digest" in done.stderr
    assert {name: (checkout / name).read_text() for name in FILES} == before


def test_our_images_get_the_digests_of_what_was_pushed(checkout: Path) -> None:
    kubectl = find_program("kubectl")
    folder = checkout / "deploy" / "kubernetes" / "production"
    done = pin(checkout, str(folder.relative_to(checkout)))
    assert done.returncode == 0, done.stderr
    with (folder / "kustomization.yaml").open("a") as file:
        file.write(done.stdout)
    rendered = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True).stdout
    images = re.findall(r"^[ -]*image: (.+)$", rendered, re.MULTILINE)
    assert len(images) == 5
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in images)
    assert len(yaml.safe_load(done.stdout)["images"]) == 3
    # So that a second time does no harm.
    assert pin(checkout, str(folder.relative_to(checkout))).stdout == ""
