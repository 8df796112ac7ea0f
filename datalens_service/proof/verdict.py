"""A verdict: a line for every claim of a proof or release.

A check names all of its claims beforehand, each with the function that examines it, and `judge` gives
each of them its line. No claim can be left out: one that was not examined reads `not checked`, and then the whole does
not hold.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, computed_field

from datalens_service.base.errors import InvalidInput, LedgerCorrupt, ReportIncomplete
from datalens_service.base.signatures import SignatureInvalid

Status = Literal["holds", "contradiction", "not checked"]

Examination = Callable[[], str]
"""Returns a finding where a claim holds; raises an error of `_CONTRADICTIONS`, or `NotChecked`, where not."""

_CONTRADICTIONS: Final = (LedgerCorrupt, InvalidInput, ReportIncomplete, SignatureInvalid)


class NotChecked(Exception):
    """A claim can be neither confirmed nor refuted; the text says why."""


class Line(BaseModel):
    """One claim and its result."""

    model_config = ConfigDict(frozen=True)

    check: str
    status: Status
    finding: str


class VerifiedSubject(NamedTuple):
    """The subject of a verdict.

    Attributes:
        given: The file or folder that was handed over, and its audience.
        claims: Everything that has to hold, in the order in which it is examined.
        not_verified: Sentences on what no examination of it can show.
    """

    given: str
    claims: Mapping[str, Examination]
    not_verified: tuple[str, ...]


class VerificationResult(BaseModel):
    """The result of a verification, line by line, and the claims that cannot be verified."""

    model_config = ConfigDict(frozen=True)

    given: str = Field(description="What it is, and for whom.")
    lines: tuple[Line, ...] = Field(min_length=1)
    not_verified: tuple[str, ...]

    @computed_field(description="Whether every line holds.")  # type: ignore[prop-decorator]
    @property
    def holds(self) -> bool:
        """Tell whether every line holds."""
        return all(line.status == "holds" for line in self.lines)

    @computed_field(description="The first one; nothing behind it was checked.")  # type: ignore[prop-decorator]
    @property
    def contradiction(self) -> str | None:
        """Return the first contradiction; nothing behind it was checked."""
        return self._first("contradiction")

    @property
    def reason(self) -> str | None:
        """Explain why it does not hold: the first contradiction, or else the first claim that was not checked."""
        return self.contradiction or self._first("not checked")

    def _first(self, status: Status) -> str | None:
        return next((f"{line.check}: {line.finding}" for line in self.lines if line.status == status), None)


def judge(subject: VerifiedSubject) -> VerificationResult:
    """Examine one claim after the other, up to the first contradiction."""
    lines: list[Line] = []
    for check, examine in subject.claims.items():
        contradicted = any(line.status == "contradiction" for line in lines)
        lines.append(Line(check=check, status="not checked", finding="") if contradicted else _line(check, examine))
    return VerificationResult(given=subject.given, lines=tuple(lines), not_verified=subject.not_verified)


def _line(check: str, examine: Examination) -> Line:
    try:
        return Line(check=check, status="holds", finding=examine())
    except NotChecked as reason:
        return Line(check=check, status="not checked", finding=str(reason))
    except _CONTRADICTIONS as error:
        return Line(check=check, status="contradiction", finding=str(error))
