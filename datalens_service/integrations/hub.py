"""Releases on Hugging Face's Hub, or offline in a folder of the same layout.

The files are those of the archive that anybody may download (`GET /v1/jobs/{id}/dataset`). It is verified first,
as `datalens verify` does: its signed sums list every file, and ε is recomputed from the proof.
"""

import json
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from datalens_service.base.errors import InvalidInput, StateConflict, WorkerUnavailable
from datalens_service.client import Client, Format
from datalens_service.client.earlier_names import accept_earlier_names

_REPORT = "report.json"
_LARGEST_REPORT = 2**24


@dataclass(frozen=True)
class ReleaseOptions:
    """The contents of a release.

    Attributes:
        format: Format of the images; the Hub shows `parquet` in its viewer.
        synthetic_images: Number of images; None takes those that the job packed.
        title: Public name of the data set; None names the job.
        license: SPDX id, for example CC-BY-4.0; `other` chooses none.
    """

    format: Format = "parquet"
    synthetic_images: int | None = None
    title: str | None = None
    license: str = "other"


_accept = accept_earlier_names(n="synthetic_images", licence="license")
ReleaseOptions.__init__ = _accept(ReleaseOptions.__init__)  # type: ignore[method-assign]


def save_release(client: Client, job_id: str, folder: Path, options: ReleaseOptions | None = None) -> Path:
    """Write a release into a folder, as the Hub would hold it; needs no account and no other host.

    Args:
        folder: New or empty, so that nothing else is published with it.

    Returns:
        The folder, which `datasets.load_dataset` and `datalens verify` read.

    Raises:
        StateConflict: The folder has files already.
        InvalidInput: The release does not verify; nothing was written.
        ClientError: The service refused.
    """
    _check_empty(folder)
    chosen = options or ReleaseOptions()
    with tempfile.TemporaryDirectory(prefix="datalens-release-") as temporary:
        archive = Path(temporary) / "release.zip"
        client.download_bundle(job_id, archive, **vars(chosen))
        check_release(archive)
        _unpack(archive, folder)
    return folder


def push_to_hub(
    client: Client,
    job_id: str,
    repository: str,
    options: ReleaseOptions | None = None,
    *,
    public: bool = False,
    endpoint: str | None = None,
) -> str:
    """Upload a release as a data set repository, with its data set card as README.

    Args:
        repository: `name` or `owner/name`; created if it does not exist.
        public: True if a new repository is open to everybody.
        endpoint: Address of another hub than huggingface.co.

    Returns:
        The address of the commit. The token is the one of `hf auth login` or of the variable HF_TOKEN.

    Raises:
        WorkerUnavailable: huggingface_hub or dp_accounting is not installed.
        InvalidInput: The release does not verify; nothing was sent.
        ClientError: The service refused.
    """
    if find_spec("huggingface_hub") is None:
        raise WorkerUnavailable("huggingface_hub is not installed. Run: pip install 'datalens-service[hub]'.")
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory(prefix="datalens-hub-") as temporary:
        folder = save_release(client, job_id, Path(temporary) / "release", options)
        hub = HfApi(endpoint=endpoint, library_name="datalens-service")
        created = hub.create_repo(repository, repo_type="dataset", private=not public, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=created.repo_id,
            repo_type="dataset",
            folder_path=folder,
            commit_message="Synthetic images with the proof of their differential privacy",
        )
    return str(commit.commit_url)


def _check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise StateConflict(f"{folder} is not empty. Name a new folder: all of it is meant to be published.")


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack all files or none, into a folder that is still empty."""
    _check_empty(folder)
    try:
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def check_release(archive: Path) -> None:
    """Refuse an archive that does not verify or has an owner's report in it."""
    from datalens_service.proof.release_verification import verify_path

    verdict = verify_path(archive)
    if not verdict.holds:
        raise InvalidInput(f"The release does not verify and stays here. {verdict.reason}")
    with zipfile.ZipFile(archive) as files:
        if _REPORT not in files.namelist():
            return
        with files.open(_REPORT) as file:
            report = json.loads(file.read(_LARGEST_REPORT))
    if report.get("view") != "releasable":
        raise InvalidInput("The release has the owner's report in it and stays here.")
