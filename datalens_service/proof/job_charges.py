"""The charges of one job as a chain of their own, which its proof holds in place of the account's journal.

    hash = SHA-256(canonical JSON of all other fields, which include the previous hash)

The chain begins with a hash of the job's id and counts from 1, so that it reveals nothing of the account: no number,
hash or entry of the journal is in it, nor whether other jobs or uploads share the account. No database here.
"""

import hashlib
import json
import operator
from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any, Final, Literal, Self

from pydantic import AwareDatetime, Field

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.base.fields import Finite
from datalens_service.proof.hash_chain import SPENDS, Entry

LARGEST_UNITS: Final = 2**63 - 1
"""The largest number of a database; it keeps the numbers of a forged proof printable."""

_CHAIN: Final = "datalens-charges/1"


class SealedCharge(Finite):
    """One sealed charge of a job."""

    number: int = Field(ge=1, description="Within the job, in order.")
    kind: Literal["charge", "recovered"] = Field(
        description="`recovered`: booked again from the log outside the database, after the database was restored."
    )
    step: int | None = Field(description="Step of the plan.")
    label: str = Field(description="Label of the mechanism.")
    ledger_units: int = Field(alias="units", ge=0, le=LARGEST_UNITS, description="Cost in 1e-15 of μ².")
    slack: int = Field(
        default=0, ge=0, le=LARGEST_UNITS, exclude_if=operator.not_, description="Beside the units, in 1e-18 of δ."
    )
    minute: AwareDatetime = Field(description="When it was booked; never finer.")
    previous_hash: str
    hash: str

    @classmethod
    def sealed(cls, **fields: Any) -> Self:
        """Return the charge of `fields` (all but `hash`) with its hash."""
        draft = cls(**fields, hash="")
        return draft.model_copy(update={"hash": draft.computed_hash()})

    def computed_hash(self) -> str:
        """Compute the hash of the other fields."""
        fields = self.model_dump(exclude={"hash"})
        return _digest({**fields, "minute": self.minute.astimezone(UTC).isoformat(timespec="microseconds")})


def chain_charges(job_id: str, journal: Iterable[Entry]) -> tuple[SealedCharge, ...]:
    """Chain the charges of a job in the `journal` of its account, oldest first, numbered from 1.

    Entries of other jobs leave no trace.
    """
    charges: list[SealedCharge] = []
    previous = genesis(job_id)
    for entry in journal:
        if entry.job_id == job_id and entry.kind in SPENDS:
            charges.append(_charge(entry, len(charges) + 1, previous))
            previous = charges[-1].hash
    return tuple(charges)


def check_charges(job_id: str, charges: Sequence[SealedCharge]) -> None:
    """Refuse a chain that is not whole.

    Raises:
        LedgerCorrupt: Names the first charge that is missing, altered or out of place.
    """
    previous = genesis(job_id)
    for number, charge in enumerate(charges, start=1):
        if charge.number != number:
            raise LedgerCorrupt(f"Charge {number} of the job is missing.")
        if charge.hash != charge.computed_hash():
            raise LedgerCorrupt(f"Charge {number} of the job was altered: its content does not match its hash.")
        if charge.previous_hash != previous:
            raise LedgerCorrupt(f"Charge {number} of the job does not follow the charge before it.")
        if charge.minute.second or charge.minute.microsecond:
            raise LedgerCorrupt(f"Charge {number} of the job is dated finer than to the minute.")
        previous = charge.hash


def genesis(job_id: str) -> str:
    """Return the hash that the first charge of a job is sealed onto."""
    return _digest({"chain": _CHAIN, "job_id": job_id})


def _charge(entry: Entry, number: int, previous_hash: str) -> SealedCharge:
    return SealedCharge.sealed(
        number=number,
        kind=entry.kind,
        step=entry.step,
        label=entry.label,
        ledger_units=entry.ledger_units,
        slack=entry.slack,
        minute=entry.at.replace(second=0, microsecond=0),
        previous_hash=previous_hash,
    )


def _digest(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
