"""Statements of a report about a job beside its numbers: assumptions, accesses to private data, policy, limits.

These are sentences with a status each, so that a reader can go through them one by one. "Guarantee" means the
privacy budget and nothing else.
"""

from typing import Any, Final, Literal

from pydantic import Field

from datalens_service.base.audience import Public, ReadAudience
from datalens_service.base.fields import Frozen, Stated
from datalens_service.models.public_source import PublicInputs
from datalens_service.report.private_reads import PRIVATE_READS, TUNING, JobFacts, PrivateRead, Status

NOT_STATED: Final = "Stated in the owner's copy only: it can depend on private records."


class Assumption(Frozen):
    """An assumption of the proof, and whether the program makes it true."""

    assumption: Public[str]
    realised: Public[bool]
    how: Public[str]


class DataAccess(Frozen):
    """One way in which private images are read, its cost, and who sees more than the guarantee covers."""

    access: Public[str]
    status: Public[Status]
    audience: Public[ReadAudience] = Field(
        description="Who sees what depends on the images, beyond what the guarantee covers."
    )
    what: Public[str]


class PublicData(Frozen):
    """Inputs of the generator other than the private images."""

    public_images_used: Public[bool]
    pre_trained_weights_used: Public[bool]
    provenance: Public[str]


class Hyperparameters(Frozen):
    """The origin of the parameters."""

    origin: Public[str]
    tuning_charged: Public[str]


class Audit(Frozen):
    """An empirical attack, which bounds the privacy loss from below only."""

    attack: Public[str]
    lower_bound_epsilon: Public[Stated | None]
    confidence: Public[float | None]
    date: Public[str | None]
    note: Public[str]


class Recomputation(Frozen):
    """The ε of the releases by a second program that shares no code with the accountant."""

    by: Public[str]
    epsilon: Public[Stated | None] = Field(description="Never below the true one.")
    delta: Public[Stated]
    agrees: Public[bool | None] = Field(description="Within rounding; null if it was not run.")
    note: Public[str]


class Policy(Frozen):
    """The policy of the budget."""

    refresh: Public[Literal["never"]]
    set_by: Public[str]
    set_on: str = Field(default=NOT_STATED, description="Date, or why it is not stated.")
    rule: Public[str]


TRUST: Final = (
    "Trusted: the operator, the machine with its random number generator, Python, NumPy and PyTorch, and whoever can "
    "write the database and the log of charges.",
    "Not trusted: recipients of releases, those who submit jobs, messages between processes, and workers that come "
    "back late.",
)

_NO_SAMPLING: Final = Assumption(
    assumption="Batches are secret random samples.",
    realised=False,
    how="Not needed: no amplification by sampling is claimed.",
)

_SAMPLING: Final = Assumption(
    assumption="Batches are secret random samples.",
    realised=True,
    how="Every unit enters every batch by its own coin from the operating system's entropy, drawn after the charge and "
    "never stored. Sums are divided by the expected batch. The time that a step takes shows roughly how many came.",
)

_EXACT_NOISE: Final = Assumption(
    assumption="Noise is fresh, exact and cannot be predicted.",
    realised=True,
    how="Integers from the operating system's entropy for every coordinate of every release; there is no seed.",
)

_REAL_ARITHMETIC: Final = Assumption(
    assumption="Noise is fresh, exact and cannot be predicted.",
    realised=False,
    how="Fresh and from the operating system's entropy, without a seed; but directions are drawn in float64, and the "
    "proof assumes real arithmetic. Choose noise gaussian where this matters.",
)

_PARTITION: Final = Assumption(
    assumption="Batches are secret random samples.",
    realised=False,
    how="Not needed: batches are a public partition by position, and every unit is in one batch of a pass.",
)

ASSUMPTIONS: Final = (
    Assumption(
        assumption="A unit reaches every release only within the stated sensitivity.",
        realised=True,
        how="Contributions are bounded by public constants and checked in exact integers; what is too long counts 0.",
    ),
    Assumption(
        assumption="A unit reaches one teacher, and teachers do not reach each other, where the method has any.",
        realised=True,
        how="Shards are a keyed hash of the unit alone; every teacher has its own weights and optimiser state.",
    ),
    _EXACT_NOISE,
    Assumption(
        assumption="Nothing is released before it is paid for.",
        realised=True,
        how="The charge is on the disk before noise is drawn; a draw that may have happened is charged again.",
    ),
    _NO_SAMPLING,
    Assumption(
        assumption="Number of units, classes and image shape do not depend on one unit.",
        realised=True,
        how="The owner made them public, and a place that is left empty still counts.",
    ),
    Assumption(
        assumption="No two units hold the same person's images.",
        realised=False,
        how="Only the owner can know. Identical images in another upload are recognised and share one budget.",
    ),
)


def assumptions(*, sampled: bool, directions: bool = False) -> tuple[Assumption, ...]:
    """List the assumptions of the guarantee, and whether each holds.

    Args:
        sampled: True if it rests on the coins of Poisson sampling as well.
        directions: True if noise is on directions, which are not drawn exactly.
    """
    if directions:
        others = {_EXACT_NOISE.assumption: _REAL_ARITHMETIC, _NO_SAMPLING.assumption: _PARTITION}
        return tuple(others.get(one.assumption, one) for one in ASSUMPTIONS)
    return tuple(_SAMPLING if sampled and one is _NO_SAMPLING else one for one in ASSUMPTIONS)


PUBLIC_DATA: Final = PublicData(
    public_images_used=False,
    pre_trained_weights_used=False,
    provenance="Initial weights, where the method has any, depend on its public seed alone.",
)


def public_data(inputs: PublicInputs, sentences: tuple[str, ...]) -> PublicData:
    """Return the inputs of the model beside the private images; `sentences` describe them."""
    if not sentences:
        return PUBLIC_DATA
    return PublicData(
        public_images_used=inputs.images is not None,
        pre_trained_weights_used=inputs.has_weights,
        provenance=" ".join(sentences),
    )


AUDIT: Final = Audit(
    attack="none had been asked for when this report was written",
    lower_bound_epsilon=None,
    confidence=None,
    date=None,
    note="An empirical attack bounds the privacy loss from below only. Its absence weakens no bound, and its success "
    "or failure would replace no proof.",
)

ASKED_AUDIT: Final = Audit(
    attack="membership inference, as the owner asked for it",
    lower_bound_epsilon=None,
    confidence=None,
    date=None,
    note="Its figures are no bound on ε. They depend on private images and are in the owner's copy, or on the page of "
    "the audit.",
)

CAVEATS: Final = (
    "Accuracies of single classes depend on private counts and are in the owner's copy only.",
    "Noise hides small groups first: rare classes, and groups within a class that nobody named, come out worse.",
    "No figure here says how well a group within a class is represented.",
)

LIMITS: Final = (
    "Near-duplicates: images that resemble each other closely and belong to different units are protected less.",
    "Side channels: start and end of a job are visible; running time, memory and hardware of the machine are outside "
    "the model.",
    "Failures: after a crash a step may be charged twice and is released once; the account errs upwards.",
    "δ is not 0: with a probability of at most δ the bound by ε may fail. It is kept below 1/n.",
    "The signature shows which installation issued the report and that it was not changed since. It does not show that "
    "the program ran as the report says.",
)

POLICY_RULE: Final = (
    "One budget for the lifetime of the records. It is not refilled by time, by deleting jobs, by uploading the same "
    "images again or by restoring a backup. Its owner can raise it, with a reason that the journal keeps."
)

UNKNOWN_CONTACT: Final = "The person who passed this on to you."


def data_accesses(spec: dict[str, Any], *, served: bool, result: str = "generator") -> tuple[DataAccess, ...]:
    """List every way in which private images were read, or could be seen.

    Args:
        spec: Spec of the job, as JSON.
        served: True if the job belongs to a service, with addresses and pages.
    """
    facts = JobFacts.from_spec(spec, served=served)
    return tuple(_described(read, facts) for read in PRIVATE_READS if read.results is None or result in read.results)


def _described(read: PrivateRead, facts: JobFacts) -> DataAccess:
    if not read.happens(facts):
        return DataAccess(access=read.access, status="none", audience="nobody", what=read.otherwise)
    return DataAccess(access=read.access, status=read.status, audience=read.audience, what=read.what)


def hyperparameters(method: str) -> Hyperparameters:
    return Hyperparameters(
        origin=f"The client's request, with the defaults of “{method}” filled in. The product's defaults and "
        "presets were chosen before, on public image sets (MNIST, Fashion-MNIST, CIFAR-10, faces), without any upload.",
        tuning_charged=TUNING,
    )
