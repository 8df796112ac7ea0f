"""`datalens jobs files`, `download` and `report`: what a job has made, as files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, cast

import typer

from datalens_service.base.errors import InvalidInput
from datalens_service.cli import options, output
from datalens_service.cli.new_file import new_file
from datalens_service.cli.options import build_integer_parser, refuse_unused
from datalens_service.cli.service import SERVICE, Service, find_job

if TYPE_CHECKING:
    from datalens_service.client import ClassifierFormat, Client, Format, ReportAudience

FileFormat = Literal["npz", "parquet", "imagefolder", "webdataset", "safetensors", "onnx"]
"""Formats of synthetic images, and of a classifier."""

_Readers = Literal["anyone", "owner"]
_Fetch: TypeAlias = "Callable[[Client, str, Path], Path]"
"""Writes a file of a job."""

_OF_IMAGES: Final = ("synthetic_images", "per_class", "classes", "seed")
"""Parameters that select images."""
_SUFFIX: Final = {"npz": ".npz", "parquet": ".parquet", "imagefolder": ".zip", "webdataset": ".tar"}
"""Suffixes of formats of images; all other formats are those of classifiers."""

Releasable = Annotated[bool, typer.Option("--releasable", help="Leave out figures for the owner alone.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--out", help="HTML file to write; default: named after the job.", dir_okay=False)
]


def files(job_id: options.JobId, service: Service = SERVICE) -> None:
    """List the files of a job, and for whom each is."""
    with service.connect() as client:
        items = client.files(find_job(client, job_id))
    rows = [(file.name, file.audience, f"{file.size:,}", file.sha256) for file in items]
    output.show_items(items, ("name", "for", "bytes", "SHA-256"), rows, as_json=service.as_json)


def download(
    context: typer.Context,
    job_id: options.JobId,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="Format of the images, or of a classifier: safetensors or onnx.")
    ] = "npz",
    synthetic_images: options.DrawnImages = None,
    per_class: Annotated[
        int | None,
        typer.Option("--per-class", parser=build_integer_parser(1), help="Number of images of each class, instead."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--classes", help="Name or number of a class; only these are drawn, in turn. Repeatable."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", parser=build_integer_parser(0), help="Seed of the draw; the same seed draws the same images."
        ),
    ] = None,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Make a zip to publish, with card, checksums and proof of ε.")
    ] = False,
    title: Annotated[str | None, typer.Option("--title", help="Public name of the data set, with --bundle.")] = None,
    license: Annotated[
        str, typer.Option("--license", help="SPDX id, for example CC-BY-4.0, with --bundle; other chooses none.")
    ] = "other",
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="Download one file of `datalens jobs files` instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; default: named after the job.", dir_okay=False)
    ] = None,
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Download the images or the classifier of a job, also while it is still being measured, or one of its files.

    Says for whom the file is.
    """
    from datalens_service.client import Client

    fetch: _Fetch
    selection: dict[str, Any] = {
        "synthetic_images": synthetic_images,
        "per_class": per_class,
        "classes": classes or (),
        "seed": seed,
    }
    if file is not None:
        others = ("file_format", *_OF_IMAGES, "bundle", "title", "license")
        refuse_unused(context, *others, why="has no effect beside --file")
        _save_file(job_id, file, out or Path(f"{job_id}-{file}"), service, force=force)
        return
    if not bundle:
        refuse_unused(context, "title", "license", why="belongs to --bundle")
    if file_format not in _SUFFIX:
        refuse_unused(context, *_OF_IMAGES, "title", why="is about images; a classifier has none")
        name = f"{job_id}-classifier.{'zip' if bundle else file_format}"
        form = "archive" if bundle else cast("ClassifierFormat", file_format)
        fetch = partial(Client.download_classifier, format=form, license=license if bundle else "other")
    elif bundle:
        name = f"{job_id}-{file_format}.zip"
        images = image_format(file_format)
        fetch = partial(Client.download_bundle, format=images, **selection, title=title, license=license)
    else:
        name = f"{job_id}{_SUFFIX[file_format]}"
        images = image_format(file_format)
        fetch = partial(Client.download, format=images, **selection)
    with new_file(out or Path(name), force=force) as path, service.connect() as client:
        fetch(client, find_job(client, job_id), path)
    _show_file(out or Path(name), "anyone", service)


def report(
    job_id: options.JobId,
    releasable: Releasable = False,
    out: HtmlFile = None,
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Write the report of a succeeded job as HTML; with --json, print it."""
    audience: ReportAudience = "releasable" if releasable else "owner"
    if service.as_json and out is None:
        with service.connect() as client:
            output.show(client.report(find_job(client, job_id), audience=audience), "", as_json=True)
        return
    place = out or Path(f"{job_id}-report.html")
    with new_file(place, force=force) as path, service.connect() as client:
        client.download_report(find_job(client, job_id), path, audience=audience)
        readers: _Readers = "anyone" if releasable else "owner"
        _keep_private(path, readers)
    _show_file(place, readers, service)


def evidence(
    job_id: options.JobId,
    releasable: Releasable = False,
    out: HtmlFile = None,
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Write what EDPB, CJEU, ISO, HIPAA and NIST ask of who signs a release, with the answers of the job, as HTML.

    A browser prints it as PDF.
    """
    name = "evidence-releasable.html" if releasable else "evidence.html"
    _save_file(job_id, name, out or Path(f"{job_id}-evidence.html"), service, force=force)


def registry(
    job_id: options.JobId,
    out: Annotated[
        Path | None, typer.Option("--out", help="YAML file to write; default: named after the job.", dir_okay=False)
    ] = None,
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Write the job as a draft for the public registry of deployments of differential privacy, as YAML."""
    _save_file(job_id, "registry.yaml", out or Path(f"{job_id}-registry.yaml"), service, force=force)


def _save_file(job_id: str, name: str, place: Path, service: Service, *, force: bool) -> None:
    """Save one file of a job, unreadable to others if it is for the owner."""
    with new_file(place, force=force) as path, service.connect() as client:
        job_id = find_job(client, job_id)
        readers = {item.name: item.audience for item in client.files(job_id)}.get(name, "owner")
        _keep_private(client.download_file(job_id, name, path), readers)
    _show_file(place, readers, service)


def image_format(file_format: FileFormat) -> Format:
    """The format of images that an option names."""
    if file_format not in _SUFFIX:
        raise InvalidInput(f"{file_format} is a format of classifiers.")
    return cast("Format", file_format)


def _keep_private(path: Path, readers: _Readers) -> None:
    """Make a file for the owner unreadable to others on a shared machine, before it gets its name."""
    if readers == "owner":
        path.chmod(0o600)


def _show_file(path: Path, readers: _Readers, service: Service) -> None:
    text = f"{path}\nFor the owner alone: not to be passed on." if readers == "owner" else str(path)
    service.show({"path": str(path), "bytes": path.stat().st_size, "audience": readers}, text)


def push(
    job_id: options.JobId,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="OWNER/NAME", help="Data set repository; created if needed.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Write the same files into this new folder instead.", file_okay=False),
    ] = None,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="Format of the images; the Hub shows parquet.")
    ] = "parquet",
    synthetic_images: options.DrawnImages = None,
    title: Annotated[str | None, typer.Option("--title", help="Public name of the data set.")] = None,
    license: Annotated[str, typer.Option("--license", help="SPDX id, for example CC-BY-4.0.")] = "other",
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public.")] = False,
    service: Service = SERVICE,
) -> None:
    """Publish synthetic images with card, licence, checksums and proof, after verifying them.

    The token for the Hub is that of `hf auth login` or HF_TOKEN. --folder needs neither token nor network.
    """
    from datalens_service.integrations.hub import ReleaseOptions, push_to_hub, save_release

    if (repository is None) == (folder is None):
        raise InvalidInput("Name either --repository or --folder.")
    release = ReleaseOptions(image_format(file_format), synthetic_images, title, license)
    with service.connect() as client:
        job_id = find_job(client, job_id)
        if folder is not None:
            place = str(save_release(client, job_id, folder, release))
        else:
            place = push_to_hub(client, job_id, repository or "", release, public=public)
    service.show({"published": place, "audience": "anyone"}, place)
