"""Folders of diffusers pipelines as generators: what is in them is checked and hashed, and nothing of it is loaded.

The operator names a folder of folders; the pipeline in a subfolder is the generator of this name, after `PREFIX`.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.fields import Frozen, Integer, Number
from datalens_service.base.settings import Settings
from datalens_service.base.wording import speak
from datalens_service.models.public_source import PublicGenerator

PREFIX: Final = "diffusers."
SETTINGS_FILE: Final = "datalens.json"
_INDEX: Final = "model_index.json"
_CLASS_NAME: Final = "_class_name"
_EXTRA: Final = "diffusers"
_PACKAGES: Final = ("diffusers", "transformers")
_CHECKER: Final = "stable_diffusion"
"""The library that an index names for the checker of Stable Diffusion, a part of diffusers."""
_KINDS: Final = frozenset({".safetensors", ".json", ".txt", ".model", ".md", ".png", ".jpg"})
_OTHERS: Final = frozenset({"LICENSE", "NOTICE", ".gitattributes"})
_WEIGHTS: Final = ".safetensors"
_CLASS: Final = "{class}"


class PipelineSettings(Frozen):
    """The operator's settings of one pipeline, in its folder."""

    steps: Integer = Field(default=25, ge=1, le=1000, description="Denoising steps of one image.")
    strength: Number = Field(default=0.6, gt=0, le=1, description="Share of the steps that a variation is taken back.")
    prompt: str = Field(default=f"a photo of {_CLASS}", description="Text for images of a class; {class} is its name.")
    batch: Integer = Field(default=16, ge=1, le=1024, description="Images that are made at once.")

    def fill_prompt(self, class_name: str) -> str:
        return self.prompt.replace(_CLASS, class_name.replace("_", " "))


def list_folders() -> dict[str, Path]:
    """List the operator's pipelines by the names of their generators; none of them is opened."""
    root = Settings().diffusers_folder
    if root is None or not root.is_dir():
        return {}
    return {PREFIX + found.parent.name: found.parent for found in sorted(root.glob(f"*/{_INDEX}"))}


def read_origin() -> tuple[str, str]:
    """Return the package that runs pipelines, and its version.

    Raises:
        InvalidSpec: It is not installed.
    """
    try:
        installed = {package: version(package) for package in _PACKAGES}
    except PackageNotFoundError:
        raise InvalidSpec(
            "Pipelines of diffusers need its package where jobs are submitted and where they run: "
            f"pip install 'datalens-service[{_EXTRA}]'."
        ) from None
    return _EXTRA, installed[_EXTRA]


def find_folder(name: str) -> Path:
    """Return the checked folder of a pipeline.

    Raises:
        InvalidSpec: There is none of this name, or one that is not taken.
    """
    folder = list_folders().get(name)
    if folder is None:
        raise InvalidSpec(
            speak(
                f"There is no pipeline {name.removeprefix(PREFIX)!r} in ⟦DATALENS_DIFFUSERS_FOLDER⟧: a subfolder of "
                f"this name with a {_INDEX}. Whoever runs the service puts it there; nothing is downloaded."
            )
        )
    _check_files(name, folder)
    _check_index(name, folder)
    read_settings(name, folder)
    return folder


def describe_pipeline(name: str) -> PublicGenerator:
    """Return a pipeline with the hash of its folder.

    Raises:
        InvalidSpec: It is not there, not taken, or the package for it is missing.
    """
    distribution, installed = read_origin()
    return PublicGenerator(
        name=name, distribution=distribution, version=installed, sha256=hash_folder(find_folder(name))
    )


def read_settings(name: str, folder: Path) -> PipelineSettings:
    """Return the operator's settings of a pipeline, or the defaults where there are none.

    Raises:
        InvalidSpec: The file has others.
    """
    file = folder / SETTINGS_FILE
    if not file.exists():
        return PipelineSettings()
    try:
        return PipelineSettings.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidSpec(f"{SETTINGS_FILE} of the generator {name} is not taken: {place}: {first['msg']}.") from None


def hash_folder(folder: Path) -> str:
    """Return the SHA-256 over lines of SHA-256 and path of all files, in the order and form of sha256sum."""
    return _hash_listed(
        folder,
        tuple(
            (str(file.relative_to(folder)), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in _files(folder)
        ),
    )


@lru_cache(maxsize=32)
def _hash_listed(folder: Path, listed: tuple[tuple[str, int, int], ...]) -> str:
    """Hash files; sizes and times of change are part of the question, so that changed ones are read anew."""
    lines = []
    for path, _, _ in listed:
        with (folder / path).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  ./{path}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(
        (file for file in folder.rglob("*") if file.is_file()), key=lambda file: str(file.relative_to(folder))
    )


def _check_files(name: str, folder: Path) -> None:
    files = _files(folder)
    for file in files:
        if file.suffix not in _KINDS and file.name not in _OTHERS:
            raise InvalidSpec(
                f"The folder of the generator {name} has {file.relative_to(folder)}. Weights are taken as safetensors "
                "alone, because other files of weights may hold code; remove what is not needed."
            )
    if not any(file.suffix == _WEIGHTS for file in files):
        raise InvalidSpec(f"The folder of the generator {name} has no weights: no file of safetensors.")


def _check_index(name: str, folder: Path) -> None:
    """Refuse an index that names code of other packages, or of the folder itself."""
    try:
        index = json.loads((folder / _INDEX).read_bytes())
        parts = {part: value[0] for part, value in index.items() if isinstance(value, list) and part != _CLASS_NAME}
        pipeline = index[_CLASS_NAME]
    except (ValueError, AttributeError, KeyError, IndexError):
        raise InvalidSpec(f"{_INDEX} of the generator {name} is not that of a pipeline.") from None
    foreign = sorted(part for part, package in parts.items() if package not in (*_PACKAGES, _CHECKER, None))
    if foreign or not isinstance(pipeline, str):
        what = f"the part {foreign[0]}" if foreign else "the pipeline"
        raise InvalidSpec(f"{_INDEX} of the generator {name} takes {what} from code that is not of diffusers.")
