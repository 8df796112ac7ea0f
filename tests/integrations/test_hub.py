"""What is published is the verified archive and nothing else: in a folder, and on a hub."""

import errno
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import huggingface_hub
import pytest
from typer.testing import CliRunner

from datalens_service.base.errors import InvalidInput, StateConflict
from datalens_service.cli.app import app
from datalens_service.client import Client
from datalens_service.data.export.release_archive import SUMS, SUMS_SIGNATURE
from datalens_service.integrations.hub import ReleaseOptions, push_to_hub, save_release
from datalens_service.proof.release_verification import verify_path

from .conftest import Released


class Hub:
    """The hub's own client with nothing behind it; every call must suit its real signature."""

    def __init__(self) -> None:
        self.api = create_autospec(huggingface_hub.HfApi, instance=True)
        self.api.create_repo.return_value.repo_id = "me/halves"
        self.api.upload_folder.side_effect = self._receive
        self.files: dict[str, bytes] = {}

    def _receive(self, **arguments: Any) -> Any:
        folder = Path(arguments["folder_path"])
        self.files = {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        return create_autospec(huggingface_hub.CommitInfo, instance=True, commit_url="https://hub/me/halves/commit/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: hub.api)
    return hub


def test_a_folder_is_a_data_set_that_hugging_face_loads_and_that_verifies(tmp_path: Path, released: Released) -> None:
    import datasets

    folder = save_release(released.client, released.job.id, tmp_path / "release", ReleaseOptions(title="Halves"))
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"), split="train")
    assert (len(loaded), loaded.features["label"].names) == (50, ["0", "1", "2", "3"])
    assert verify_path(folder).holds
    assert "# Halves" in (folder / "README.md").read_text()


def test_a_hub_receives_what_the_sums_know_in_a_repository_that_is_not_public(released: Released, hub: Hub) -> None:
    assert push_to_hub(released.client, released.job.id, "me/halves").startswith("https://hub/")
    assert hub.api.create_repo.call_args.kwargs["private"] is True
    known = {line.split("  ", 1)[1] for line in hub.files[SUMS].decode().splitlines()}
    assert hub.files.keys() == known | {SUMS, SUMS_SIGNATURE}
    assert json.loads(hub.files["report.json"])["view"] == "releasable"
    owners = {one.sha256 for one in released.client.files(released.job.id) if one.audience == "owner"}
    assert owners
    assert not owners & {hashlib.sha256(content).hexdigest() for content in hub.files.values()}
    report = released.client.report(released.job.id)
    secret = report["dataset"]["fingerprint"]["value"]
    assert secret
    assert not [name for name, content in hub.files.items() if secret.encode() in content]


def test_a_release_that_could_not_be_written_as_a_whole_leaves_nothing(
    tmp_path: Path, released: Released, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(archive: zipfile.ZipFile, folder: Path) -> None:
        archive.extract(archive.namelist()[0], folder)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", write_half)
    with pytest.raises(OSError, match="full"):
        save_release(released.client, released.job.id, tmp_path / "release")
    assert not (tmp_path / "release").exists()


def change_report(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "view": "owner"}).encode()


@pytest.mark.parametrize("damage", ["changed", "added"])
def test_what_does_not_verify_is_not_sent(
    released: Released, hub: Hub, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = Client.download_bundle

    def damaged(self: Client, job_id: str, path: Path, **options: Any) -> Path:
        download(self, job_id, path, **options)
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        files |= {"report.json": change_report(files["report.json"])} if damage == "changed" else {"notes.txt": b"mine"}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path

    monkeypatch.setattr(Client, "download_bundle", damaged)
    with pytest.raises(InvalidInput, match=r"does not verify and stays here\. .*(report\.json|notes\.txt)"):
        push_to_hub(released.client, released.job.id, "me/halves")
    hub.api.create_repo.assert_not_called()
    hub.api.upload_folder.assert_not_called()


def test_a_folder_with_files_is_left_alone(tmp_path: Path, released: Released) -> None:
    (tmp_path / "private.npz").write_bytes(b"mine")
    with pytest.raises(StateConflict, match="is not empty"):
        save_release(released.client, released.job.id, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["private.npz"]


def test_the_command_publishes_to_a_folder_or_a_hub(tmp_path: Path, released: Released, hub: Hub) -> None:
    def push(*arguments: object) -> Any:
        access = ("jobs", "push", released.job.id, "--url", released.url, "--api-key", released.api_key, "--json")
        return CliRunner().invoke(app, [str(one) for one in (*access, *arguments)])

    made = push("--folder", tmp_path / "release", "--format", "webdataset", "--license", "CC0-1.0")
    assert (made.exit_code, (tmp_path / "release/data/train-00000.tar").is_file()) == (0, True)
    sent = json.loads(push("--repository", "me/halves").stdout)
    assert sent == {"published": "https://hub/me/halves/commit/1", "audience": "anyone"}
    assert push().exit_code == push("--repository", "me/halves", "--folder", tmp_path / "other").exit_code == 2
