"""What attacks found, as reports state it: figures in the owner's copy, and where they lie in the other one."""

from typing import Final

from pydantic import Field

from datalens_service.disclosure import Public
from datalens_service.strict import Finite

OWNER_NOTICE: Final = (
    "What attacks reached on models of this method at this ε. The figures depend on private images, the guarantee does "
    "not cover them, and they are not to be passed on. They are lower bounds: a weak attack proves nothing."
)
RELEASABLE_NOTICE: Final = (
    "The owner asked for attacks on this method at this ε. What they found depends on private images, so it lies with "
    "the owner."
)


class RocPoint(Finite):
    """A point of the curve of an attack.

    Attributes:
        false_positive_rate: Share of non-members called members, at most.
        true_positive_rate: Share of members called members.
        allowed: Largest true positive rate that μ allows; None where no μ holds.
    """

    false_positive_rate: float
    true_positive_rate: float
    allowed: float | None


class AttackFinding(Finite):
    """Private: what one attack reached."""

    audit: str = Field(description="Id of the audit.")
    target: str = Field(description="What was attacked, in words.")
    attack: str
    source: str
    members: int
    non_members: int
    auc: float = Field(description="Area under the ROC curve; one half is chance.")
    interval: tuple[float, float] = Field(description="95 % of the area.")
    auc_allowed: float | None = Field(description="Largest area that μ allows.")
    curve: tuple[RocPoint, ...]


class AttacksSection(Finite):
    """F23. In reports on jobs whose owner had asked for attacks when the report was written."""

    notice: Public[str]
    findings: tuple[AttackFinding, ...] = Field(default=(), description="In the owner's copy only.")
