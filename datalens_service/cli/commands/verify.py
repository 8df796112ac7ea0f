"""`datalens verify`: recompute the ε of a job from its proof alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from datalens_service.cli import options, output
from datalens_service.cli.failures import ExitCode

if TYPE_CHECKING:
    from datalens_service.proof.verdict import VerificationResult


def verify(
    proof: Annotated[
        Path,
        typer.Argument(
            help="The privacy.json of a job, or the archive of a release with it, packed or not.", exists=True
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
    as_json: options.AsJson = False,
) -> None:
    """Recompute what a job cost from its proof, and say what was verified and what cannot be.

    Reads nothing but the file, and every file of an archive or folder; needs no service. The key is published at
    /v1/signing-key of the service that made the file. An owner may give account-proof.json as well: it proves
    the lifetime of the account. Exit code 0: everything was checked and holds. Exit code 1: something contradicts, or
    was not checked. Exit code 2: the file is no proof.
    """
    from datalens_service.base.signatures import public_key
    from datalens_service.proof.release_verification import verify_path

    verdict = verify_path(proof, None if key is None else public_key(key))
    output.show(verdict, _render_verdict(verdict, vouched=key is not None), as_json=as_json)
    if not verdict.holds:
        raise typer.Exit(ExitCode.JOB_FAILED)


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
