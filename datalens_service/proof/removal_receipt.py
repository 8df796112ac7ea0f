"""The receipt for the removal of a tenant: what left, what stays and why, signed by the installation."""

from datetime import datetime
from functools import partial
from typing import Final, Literal

from pydantic import Field, ValidationError

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.base.fields import Finite, Stated
from datalens_service.base.signatures import PublicKey, Signature
from datalens_service.proof.job_charges import LARGEST_UNITS
from datalens_service.proof.job_proof import SIGNATURE, ExpectedKey, Head, name_signer
from datalens_service.proof.verdict import VerifiedSubject
from datalens_service.report.document import Product

RECEIPT_FORMAT: Final = "datalens-removal/1"
_GIVEN: Final = "the receipt for the removal of a tenant, for its owner and the operator"
_NOT_VERIFIED: Final = (
    "That nothing of it is left in backups, snapshots and versions that the operator keeps elsewhere.",
    "That the program removed what the receipt says: it is the word of the installation that signed it.",
)
KEPT_BUDGETS: Final = (
    "A budget is for the lifetime of the records. Without its charges and the keyed fingerprints of the images, the "
    "same images could be uploaded again with a new budget, and more would be learned about them than was promised."
)
KEPT_JOURNAL: Final = (
    "It says who did what, with ids of keys and objects alone. It goes when the policy of the installation says so."
)


class KeptAccount(Finite):
    """The budget of records that are gone."""

    id: str
    epsilon: Stated = Field(gt=0, description="Lifetime limit at δ.")
    delta: Stated = Field(gt=0, lt=1)
    limit_units: int = Field(ge=0, le=LARGEST_UNITS)
    charged_units: int = Field(ge=0, le=LARGEST_UNITS)
    head: Head


class Removed(Finite):
    """Ids and numbers of what left."""

    datasets: tuple[str, ...]
    jobs: tuple[str, ...] = Field(description="Jobs and audits whose results left.")
    generators: tuple[str, ...] = Field(description="Imported generators.")
    keys: int = Field(ge=0)
    persons: int = Field(ge=0, description="People known by single sign-on.")
    webhooks: int = Field(ge=0)
    uploads: int = Field(ge=0)
    files: int = Field(ge=0, description="Files of jobs.")


class Remainder(Finite):
    """The budgets with the fingerprints of their records, and the journal, which stay, and why.

    How many fingerprints there are is not said: the number of distinct records is private.
    """

    accounts: tuple[KeptAccount, ...]
    why_budgets: str = KEPT_BUDGETS
    journal: Head | None = Field(description="Last entry of its audit journal.")
    why_journal: str = KEPT_JOURNAL


class RemovalReceipt(Finite):
    """The statement of an installation about a tenant that it has removed."""

    format: Literal["datalens-removal/1"] = RECEIPT_FORMAT
    product: Product
    tenant_id: str
    tenant_name: str
    requested_at: datetime
    removed_at: datetime
    removed: Removed
    kept: Remainder
    signature: Signature | None = None


def describe_receipt(content: bytes, key: PublicKey | None) -> VerifiedSubject:
    """Collect the claims of a receipt, and what none can show."""
    claims = {
        "form": partial(_check_form, content),
        SIGNATURE: partial(name_signer, content, None if key is None else ExpectedKey(key)),
    }
    return VerifiedSubject(_GIVEN, claims, _NOT_VERIFIED)


def _check_form(content: bytes) -> str:
    try:
        receipt = RemovalReceipt.model_validate_json(content)
    except ValidationError as error:
        raise LedgerCorrupt("It is not of the form that its format names.") from error
    if receipt.removed_at < receipt.requested_at:
        raise LedgerCorrupt("It was removed before anybody asked for it.")
    overspent = next((one.id for one in receipt.kept.accounts if one.charged_units > one.limit_units), None)
    if overspent is not None:
        raise LedgerCorrupt(f"The account {overspent} has spent more than its limit.")
    kept = f"{len(receipt.kept.accounts):,} budgets are kept"
    return f"{receipt.format}: {receipt.tenant_name} was removed at {receipt.removed_at.isoformat()}; {kept}."
