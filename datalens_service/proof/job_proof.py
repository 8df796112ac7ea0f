"""The files that a succeeded job leaves for `datalens verify`, each for one audience.

    privacy.json         proof of one job: card, plan and the charges of that job. Anybody may have it.
    account-proof.json   card, plan and the whole journal of the account that paid, with who submitted each job of it:
                         for the owner alone, because it tells what others spent, and whether another upload shares a
                         record with this one.

No database here: the journal is handed in, and `proof_verification.py` reads nothing but a file.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from pydantic import Field

from datalens_service.base.fields import Finite, Stated
from datalens_service.base.signatures import PublicKey, Signature, SignatureInvalid, signer
from datalens_service.mechanisms import PlannedRelease
from datalens_service.privacy.accounting import Charge, stated_epsilon
from datalens_service.proof.hash_chain import SPENDS, Balance, Entry, follow
from datalens_service.proof.job_charges import LARGEST_UNITS, SealedCharge, chain_charges
from datalens_service.proof.spenders import Spender
from datalens_service.report.build import Report
from datalens_service.report.card import Card
from datalens_service.report.document import Product

PROOF_FORMAT: Final = "datalens-bundle/2"
PROOF_FILE: Final = "privacy.json"
ACCOUNT_FORMAT: Final = "datalens-bundle/3"
EARLIER_ACCOUNT_FORMAT: Final = "datalens-bundle/1"
ACCOUNT_FILE: Final = "account-proof.json"


class Payment(NamedTuple):
    """The payment of a job for one release, as either file has it."""

    name: str
    step: int | None
    label: str
    ledger_units: int
    slack: int


class _Recomputable(Finite):
    """The members that both files have."""

    format: str
    product: Product
    job_id: str
    card: Card
    plan: tuple[PlannedRelease, ...] = Field(min_length=1, description="All releases that were planned, in order.")
    signature: Signature | None = Field(
        default=None, description="Signature of the installation; None before the proof is released."
    )


class JobProof(_Recomputable):
    """`privacy.json`, a function of released values and of what the owner declared public."""

    format: Literal["datalens-bundle/2"] = PROOF_FORMAT
    charges: tuple[SealedCharge, ...] = Field(min_length=1, description="Charges of this job, in order.")
    head: str = Field(description="Hash of the last charge.")

    @classmethod
    def from_account_proof(cls, account_proof: AccountProof) -> JobProof:
        """Take the part of the owner's file that is about the job; it names no key and no person."""
        charges = chain_charges(account_proof.job_id, account_proof.entries)
        return cls(
            product=account_proof.product,
            job_id=account_proof.job_id,
            card=account_proof.card,
            plan=account_proof.plan,
            charges=charges,
            head=charges[-1].hash,
        )

    @property
    def payments(self) -> tuple[Payment, ...]:
        return tuple(
            Payment(f"Charge {one.number}", one.step, one.label, one.ledger_units, one.slack) for one in self.charges
        )


class Head(Finite):
    """The end of the chain; a reader who notes it can tell later that the chain was not rewritten."""

    seq: int = Field(ge=1)
    hash: str


class AccountFacts(Finite):
    """The balance of the journal."""

    id: str
    epsilon: Stated = Field(gt=0, description="Lifetime limit at δ.")
    delta: Stated = Field(gt=0, lt=1)
    epsilon_spent: Stated = Field(ge=0, description="ε of everything charged, rounded up.")
    limit_units: int = Field(ge=0, le=LARGEST_UNITS)
    reserved_units: int = Field(ge=0, le=LARGEST_UNITS)
    charged_units: int = Field(ge=0, le=LARGEST_UNITS)
    reserved_slack: int = Field(default=0, ge=0, le=LARGEST_UNITS, exclude_if=operator.not_)
    charged_slack: int = Field(
        default=0,
        ge=0,
        le=LARGEST_UNITS,
        exclude_if=operator.not_,
        description="Slack of sampled batches, in 1e-18 of δ.",
    )
    head: Head

    @classmethod
    def from_balance(cls, account_id: str, epsilon: float, delta: float, balance: Balance) -> AccountFacts:
        """State the account at the end of its journal."""
        reserved_slack, charged_slack = (
            sum(slack.values()) for slack in (balance.reserved_slack, balance.charged_slack)
        )
        return cls(
            id=account_id,
            epsilon=epsilon,
            delta=delta,
            epsilon_spent=stated_epsilon(Charge(balance.total_charged, charged_slack), delta),
            limit_units=balance.limit,
            reserved_units=balance.total_reserved,
            charged_units=balance.total_charged,
            reserved_slack=reserved_slack,
            charged_slack=charged_slack,
            head=Head(seq=balance.head_seq, hash=balance.head_hash),
        )


class _OfAccount(_Recomputable):
    """The members that proofs of an account have."""

    account: AccountFacts
    entries: tuple[Entry, ...] = Field(min_length=1, description="The whole journal up to now, oldest first.")

    @property
    def payments(self) -> tuple[Payment, ...]:
        """Return the payments of the job, in order."""
        spends = (entry for entry in self.entries if entry.job_id == self.job_id and entry.kind in SPENDS)
        return tuple(
            Payment(f"Entry {entry.seq}", entry.step, entry.label, entry.ledger_units, entry.slack) for entry in spends
        )


class EarlierAccountProof(_OfAccount):
    """`account-proof.json` and `privacy.json` of earlier versions, which did not record who spent."""

    format: Literal["datalens-bundle/1"] = EARLIER_ACCOUNT_FORMAT


class AccountProof(_OfAccount):
    """`account-proof.json`. For the owner alone."""

    format: Literal["datalens-bundle/3"] = ACCOUNT_FORMAT
    spenders: tuple[Spender, ...] = Field(
        min_length=1, description="Who submitted each job of the journal; null where it was not recorded."
    )


Proof = JobProof | AccountProof | EarlierAccountProof
"""The proofs that `datalens verify` reads."""


def build_account_proof(
    job_id: str, report: Report, entries: Iterable[Entry], epsilon: float, delta: float, spenders: Iterable[Spender]
) -> AccountProof:
    """Put the owner's file of a job together; `JobProof.from_account_proof` makes the other one from it.

    Args:
        report: Report of the job, of which its card and the plan enter.
        entries: The whole journal of the account that paid, oldest first.
        spenders: The submitter of each job that it names.

    Raises:
        LedgerCorrupt: The journal does not add up.
    """
    journal = tuple(entries)
    return AccountProof(
        product=report.product,
        job_id=job_id,
        card=Card.from_report(report),
        plan=report.method.plan,
        account=AccountFacts.from_balance(journal[0].account_id, epsilon, delta, follow(journal)),
        entries=journal,
        spenders=tuple(spenders),
    )


SIGNATURE: Final = "signature"


class ExpectedKey(NamedTuple):
    """A key that has to have signed something.

    If no reader named it (`given`), it signed the proof in the same archive, and nobody vouched for it.
    """

    key: PublicKey
    given: bool = True


def name_signer(content: bytes, expected: ExpectedKey | None) -> str:
    """Name the signer of a document.

    Args:
        content: Content of the file, which may come from anybody.
        expected: The key that has to have signed it; None accepts anybody's.

    Raises:
        SignatureInvalid: Nobody signed it, somebody else did, or it was changed since.
    """
    signing_key = signer(content)
    if signing_key is None:
        raise SignatureInvalid("Nobody signed it. Whatever an installation hands out is signed.")
    key_id = signing_key.key_id
    if expected is None:
        return f"Signed by key {key_id}. The key is not confirmed: no --key was given."
    if signing_key != expected.key:
        other = "the given one" if expected.given else "that of the proof"
        raise SignatureInvalid(f"Signed by key {key_id}, not by {other}, {expected.key.key_id}.")
    return f"Signed by the given key, {key_id}." if expected.given else f"Signed by key {key_id}, as the proof is."
