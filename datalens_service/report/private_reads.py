"""Every way in which this product reads private images: what depends on them, who sees it, and where it happens.

The table in each report is made from this registry. A module that reads records names its reads in a constant
`PRIVATE_READS`, an operation that shows what depends on them in `Rule.shows` (api/security/permissions.py). Tests walk
the routes of the service and the modules of the program, and fail on a read without a name
(`tests/api/test_private_reads.py`, `tests/evaluation/test_private_reads.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, Self

from datalens_service.base.audience import ReadAudience
from datalens_service.report.result_wording import PUBLIC_IMAGES

Status = Literal["charged", "post-processing", "owner only, not charged", "not covered", "none"]

GENERATOR: Final = frozenset({"generator", PUBLIC_IMAGES})
CLASSIFIER: Final = frozenset({"classifier"})

TUNING: Final = (
    "Not charged. Presets read public values only. If somebody chose parameters after looking at results on the "
    "private images, that look is outside the budget."
)


@dataclass(frozen=True)
class JobFacts:
    """Public facts about a job that decide which reads it has.

    Attributes:
        served: True if it belongs to a service, with addresses and pages; False for `datalens train`.
        holdout: True if a data set was named that is set aside.
    """

    served: bool
    measured: bool
    holdout: bool

    @classmethod
    def from_spec(cls, spec: dict[str, Any], *, served: bool) -> Self:
        evaluation = spec.get("evaluation", {})
        measured = bool(evaluation.get("enabled", False))
        return cls(served, measured, measured and evaluation.get("holdout") is not None)


_served, _measured, _with_holdout = map(attrgetter, ("served", "measured", "holdout"))


@dataclass(frozen=True)
class PrivateRead:
    """One way in which private images are read.

    Attributes:
        status: Its relation to the guarantee.
        audience: Those who see what depends on the images, beyond what the guarantee covers.
        otherwise: The statement of a report where `happens` is false.
        results: Kinds of released models whose reports list it; None is all.
    """

    access: str
    status: Status
    audience: ReadAudience
    what: str
    otherwise: str = ""
    happens: Callable[[JobFacts], bool] = lambda _facts: True
    results: frozenset[str] | None = None


_NOT_SERVED: Final = "No service has these images, so there is no page and no address that shows any of them."
_NOT_MEASURED: Final = "The job was asked to measure nothing."

PRIVATE_READS: Final = (
    PrivateRead(
        access="training",
        status="charged",
        audience="nobody",
        what="The releases listed here, each charged before its noise was drawn.",
    ),
    PrivateRead(
        access="attacks",
        status="owner only, not charged",
        audience="owner",
        what="If the owner asks for an audit, parts of the records train models that never leave the process, and "
        "released models are attacked with records and test images; gradients of single records are inverted. Figures "
        "and pictures go to the owner alone.",
        otherwise="A run without a service has no audit. The owner can rehearse one by a command of its own.",
        happens=_served,
    ),
    PrivateRead(
        access="figures on test images",
        status="owner only, not charged",
        audience="owner",
        what="Accuracy, also of each class with its number of test images. Covered by the guarantee, and in both "
        "copies, only if the owner declared the test images public.",
        otherwise=_NOT_MEASURED,
        happens=_measured,
        results=GENERATOR,
    ),
    PrivateRead(
        access="figures of the classifier on test images",
        status="owner only, not charged",
        audience="owner",
        what="Accuracy, and a table of which class is taken for which with its numbers of test images. The accuracy "
        "is covered by the guarantee, and in both copies, only if the owner declared the test images public.",
        otherwise=_NOT_MEASURED,
        happens=_measured,
        results=CLASSIFIER,
    ),
    PrivateRead(
        access="baselines and figures of training images",
        status="owner only, not charged",
        audience="owner",
        what="What simpler noisy releases, such as class averages, and the real training images would reach. The noise "
        "of the baselines is for comparison; they are neither released nor charged.",
        otherwise=_NOT_MEASURED,
        happens=_measured,
        results=GENERATOR,
    ),
    PrivateRead(
        access="fidelity",
        status="owner only, not charged",
        audience="owner",
        what="Distances to test images, to images set aside or to training images, as the settings say. Covered by "
        "the guarantee, and in both copies, only on test images that the owner declared public.",
        otherwise=_NOT_MEASURED,
        happens=_measured,
        results=GENERATOR,
    ),
    PrivateRead(
        access="accuracy on a data set that was set aside",
        status="charged",
        audience="nobody",
        what="A noisy count, charged to the budget of that data set; without enough budget there is none.",
        otherwise="None was named.",
        happens=_with_holdout,
    ),
    PrivateRead(
        access="samples, pictures, nearest neighbours and more images",
        status="post-processing",
        audience="nobody",
        what="Drawn from the released generator, and compared with each other only. No private image is read.",
        results=GENERATOR,
    ),
    PrivateRead(
        access="predictions",
        status="post-processing",
        audience="nobody",
        what="Computed by the released classifier on images that somebody sends, which are neither kept nor logged. "
        "No record of the data set is read.",
        results=CLASSIFIER,
    ),
    PrivateRead(
        access="individual epsilon of a record",
        status="post-processing",
        audience="nobody",
        what="Computed from released iterates and an image that somebody sends, of jobs that keep their iterates. No "
        "record of the data set is read, and the answer does not tell whether the image is one.",
        results=CLASSIFIER,
    ),
    PrivateRead(
        access="reading the upload",
        status="owner only, not charged",
        audience="owner",
        what="The service shows whoever may upload: the number of records in each class, how many records have the "
        "pixels of another one, what was read otherwise than expected, and the names of files that cannot "
        "be used. It does so until the data set is deleted. The names of the classes are shown there as well, until "
        "the owner confirms that they may be public.",
        otherwise=_NOT_SERVED,
        happens=_served,
    ),
    PrivateRead(
        access="pictures of the upload",
        status="owner only, not charged",
        audience="owner",
        what="The service shows whoever may upload the first images of each class, unchanged, until the data set is "
        "deleted.",
        otherwise=_NOT_SERVED,
        happens=_served,
    ),
    PrivateRead(
        access="recognising records that come again",
        status="not covered",
        audience="owner and operators",
        what="Keyed fingerprints of the records tell which uploads share one, so that these share a budget. The owner "
        "is told, and keys that may read budgets see a shared one. No record and no fingerprint is shown, and nothing "
        "that may be passed on depends on it.",
        otherwise="A run without a service has one data set only.",
        happens=_served,
    ),
    PrivateRead(
        access="trials before this job",
        status="not covered",
        audience="nobody",
        what=TUNING,
    ),
)  # fmt: skip
