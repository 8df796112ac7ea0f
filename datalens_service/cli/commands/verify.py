"""`datalens verify`: recompute the ε of a job from its proof alone, or look for marks of synthetic images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from datalens_service.base.errors import InvalidInput
from datalens_service.cli.failures import ExitCode
from datalens_service.cli.options import refuse_unused
from datalens_service.cli.service import SERVICE, Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.x509 import Certificate

    from datalens_service.proof.marks import LookUp, Marks
    from datalens_service.proof.verdict import VerificationResult

_MARKED: Final = "It is marked as synthetic."
_UNMARKED: Final = (
    "No mark was found. That proves nothing: saving an image anew drops marks, and most synthetic images have none."
)
_BROKEN: Final = "It was changed after it was signed: do not rely on what its marks say."


def verify(
    context: typer.Context,
    proof: Annotated[
        Path,
        typer.Argument(
            help="The privacy.json of a job, or the archive of a release with it, packed or not; or an image.",
            exists=True,
        ),
    ],
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Public key that must have signed it: 64 hexadecimal digits, PEM, or a file with one of them. With "
            "a key, reports can be checked, too.",
        ),
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(
            "--release",
            help="For an image: the archive of the release that it may be from, packed or not.",
            exists=True,
        ),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(
            "--authority",
            help="PEM file with certificates of authorities that you trust: to say who signed an image (C2PA), or when "
            "the time stamp beside account-proof.json was made.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    ask_service: Annotated[
        bool, typer.Option("--ask-service", help="For an image: send the hash of its pixels to the service.")
    ] = False,
    service: Service = SERVICE,
) -> None:
    """Recompute what a job cost from its proof, and say what was verified and what cannot be.

    Reads nothing but the file, and every file of an archive or folder; needs no service. The key is published at
    /v1/signing-key of the service that made the file. An owner may give account-proof.json as well: it proves
    the lifetime of the account. Exit code 0: everything was checked and holds. Exit code 1: something contradicts, or
    was not checked. Exit code 2: the file is no proof.

    For an image, or a model with its .c2pa file beside it, say whether it is marked as synthetic: by metadata (XMP), by
    Content Credentials (C2PA), in the archive of a release, at the service. Exit code 0: a mark was found. Exit code 1:
    none was found, which proves nothing, or one is broken.
    """
    from datalens_service.base.signatures import public_key
    from datalens_service.proof.marks import WhereToLook, can_be_marked, find_marks
    from datalens_service.proof.release_verification import verify_path

    if can_be_marked(proof):
        refuse_unused(context, "key", why="is about proofs and reports")
        trusted = None if authority is None else _join_certificates(_read_certificates(authority))
        where = WhereToLook(release, trusted, _build_look_up(service) if ask_service else None)
        marks = find_marks(proof, where)
        service.show(marks, _render_marks(marks))
        if not marks.marked:
            raise typer.Exit(ExitCode.JOB_FAILED)
        return
    refuse_unused(context, "release", "ask_service", why="is about images")
    authorities = () if authority is None else _read_certificates(authority)
    verdict = verify_path(proof, None if key is None else public_key(key), authorities)
    service.show(verdict, _render_verdict(verdict, vouched=key is not None))
    if not verdict.holds:
        raise typer.Exit(ExitCode.JOB_FAILED)


def _read_certificates(path: Path) -> Sequence[Certificate]:
    """Read certificates.

    Raises:
        InvalidInput: The file has none.
    """
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        raise InvalidInput(f"{path} is no PEM file with certificates.") from None


def _join_certificates(certificates: Sequence[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)


def _build_look_up(service: Service) -> LookUp:
    def ask(pixel_hash: str) -> str | None:
        with service.connect() as client:
            made = [f"{one.job_id} of {one.released_at:%Y-%m-%d}" for one in client.find_images(pixel_hash)]
        return f"Made by job {', '.join(made)}." if made else None

    return ask


def _render_marks(marks: Marks) -> Text:
    width = max(len(line.mark) for line in marks.lines)
    lines = [f"{line.status:11}  {line.mark:{width}}  {line.finding}" for line in marks.lines]
    summary = _BROKEN if marks.broken else _MARKED if marks.marked else _UNMARKED
    return Text("\n".join(map(_replace_control_characters, [f"Given: {marks.given}.", "", *lines, "", summary])))


def _render_verdict(verdict: VerificationResult, *, vouched: bool) -> Text:
    width = max(len(line.check) for line in verdict.lines)
    checks = [f"{line.status:13}  {line.check:{width}}  {line.finding}".rstrip() for line in verdict.lines]
    summary = _summarize(verdict, vouched)
    not_verified = [f"  {sentence}" for sentence in verdict.not_verified]
    origin = f"Given: {verdict.given}."
    lines = [origin, "", *checks, "", summary, "", "Not verified:", *not_verified]
    return Text("\n".join(map(_replace_control_characters, lines)))


def _summarize(verdict: VerificationResult, vouched: bool) -> str:
    if verdict.contradiction is not None:
        return f"Do not rely on it. {verdict.contradiction}"
    if not verdict.holds:
        return f"Do not rely on all of it: not everything was checked. {verdict.reason}"
    missing = "" if vouched else " The signing key is not confirmed: name the key that you expect with --key."
    return f"Everything above holds.{missing}"


def _replace_control_characters(line: str) -> str:
    """A proof may come from anybody: none of its control sequences may reach the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
