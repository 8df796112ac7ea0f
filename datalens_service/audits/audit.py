"""Settings, evidence and results that all audits share.

Figures depend on private records: they are for the owner alone, and not to be passed on.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.audits.attacks import MEMBERSHIP, Evidence, measure_fit
from datalens_service.audits.inversion_figures import InversionFigures
from datalens_service.audits.membership import MembershipFigures, measure
from datalens_service.audits.subgroups import ClassFigures, GroupFigures, measure_classes, measure_groups
from datalens_service.base.fields import Frozen, Integer
from datalens_service.data.dataset import Dataset, Split
from datalens_service.models.released import ReleasedModel
from datalens_service.report.verdict import judge_attack, judge_inversion

PRIVATE_READS = ("attacks",)

Train = Callable[[Dataset, int], ReleasedModel]
"""Trains the audited method on a data set, with a seed of training randomness."""

FEWEST_UNITS: Final = 400
NOTE: Final = (
    "Lower bounds: what these attacks reached. A stronger one may reach more, up to what μ allows. False positives are "
    "counted over all records together; single records can be easier to tell."
)


class AuditSettings(Frozen):
    """The settings of an audit of membership.

    Attributes:
        attacks: Names in `MEMBERSHIP`, which the caller has checked.
        references: Models trained without the candidates.
        candidates: Most members, and most others, that are scored.
        groups: Names of classes by the name of a group whose success is measured together.
    """

    attacks: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(MEMBERSHIP)
    references: Integer = Field(default=8, ge=2, le=64)
    candidates: Integer = Field(default=2000, ge=50, le=100_000)
    groups: dict[str, tuple[str, ...]] = Field(default={})
    seed: Integer = Field(default=0, ge=0, lt=2**63)

    @property
    def needs_references(self) -> bool:
        """Tell whether an attack compares with models that never saw the candidates."""
        return any(MEMBERSHIP[name].needs_references for name in self.attacks)

    @property
    def models(self) -> int:
        """Return the number of reference models that are trained."""
        return self.references if self.needs_references else 0


class AttackResult(BaseModel):
    """Name, source and figures of one attack."""

    model_config = ConfigDict(frozen=True)

    attack: str
    source: str
    figures: MembershipFigures


class AuditResult(BaseModel):
    """The results of attacks. Private: for the owner alone.

    Attributes:
        bound: Meaning of the figures: no proof that another attack reaches no more.
        result: Kind of what was attacked: generator, classifier, or gradient if nothing else was.
        mu: Gaussian differential privacy that the audited models have for one record; None without any.
        units_per_model: Privacy units that the audited model, or gradient, is made from.
        references: Models that learned from none of the candidates.
        attacks: Attacks on membership, in the order asked for.
        classes: Loss threshold in each class.
        groups: Loss threshold in each declared group of classes.
        inversion: Inversion of gradients, if it was asked for.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal["datalens-audit/1"] = "datalens-audit/1"
    audience: Literal["owner"] = "owner"
    bound: Literal["lower_bound"] = "lower_bound"
    result: str
    mu: float | None
    units_per_model: int
    references: int
    attacks: tuple[AttackResult, ...]
    classes: tuple[ClassFigures, ...]
    groups: tuple[GroupFigures, ...] = ()
    inversion: InversionFigures | None = None
    note: str = NOTE

    def verdicts(self) -> tuple[str, ...]:
        """Judge each attack in a sentence."""
        figures = [(row.attack, row.figures) for row in self.attacks]
        areas = [f"{name}: {judge_attack(one.auc, one.interval, one.auc_allowed)}" for name, one in figures]
        found = self.inversion and {"raw": self.inversion.raw, "released": self.inversion.released}
        errors = [judge_inversion(kind, one.median, one.interval) for kind, one in (found or {}).items() if one]
        return (*areas, *errors)

    @property
    def strongest(self) -> AttackResult | None:
        """Return the attack on membership with the largest area under its curve; None without any."""
        return max(self.attacks, key=lambda row: row.figures.auc, default=None)


class Parts(Protocol):
    """The parts of a data set that candidates and reference models come from."""

    def candidates(self, most: int) -> tuple[Split, NDArray[np.bool_]]:
        """Return records to be told apart, with units if any; True marks those that the audited model learned from."""

    def reference(self) -> Dataset:
        """Return the records of another reference, none of the candidates; drawn anew each time."""


def gather_evidence(target: ReleasedModel, parts: Parts, train: Train, settings: AuditSettings) -> Evidence:
    """Measure how well the candidates fit the audited model and references, which are trained here and dropped."""
    candidates, is_member = parts.candidates(settings.candidates)
    fits = measure_fit(target, candidates)
    references: Sequence[NDArray[np.float64]] = [
        measure_fit(train(parts.reference(), settings.seed + 1 + number), candidates)
        for number in range(settings.models)
    ]
    evidence = Evidence(fits, np.array(references).reshape(-1, len(fits)), candidates.labels, is_member)
    # μ is about whole units, so candidates are units, too.
    return evidence if candidates.units is None else evidence.group_units(candidates.units)


def state_result(
    evidence: Evidence, dataset: Dataset, units: int, mu: float | None, settings: AuditSettings, result: str
) -> AuditResult:
    """Score every attack; `mu` is that of the audited model for one record, None if it is not private."""
    return AuditResult(
        result=result,
        mu=mu,
        units_per_model=units,
        references=settings.models,
        attacks=tuple(_score(name, evidence, mu) for name in settings.attacks),
        classes=measure_classes(evidence, dataset.schema.class_names, settings.seed),
        groups=measure_groups(evidence, dataset.schema.class_names, settings.groups, settings.seed),
    )


def take_units(dataset: Dataset, units: NDArray[np.int64]) -> Dataset:
    """Return the part of a data set that belongs to `units`, without a test split."""
    rows, train = rows_of_units(dataset, units), dataset.train
    # Single records are identified by their positions, in a part as in the whole.
    split = Split(train.images[rows], train.labels[rows], None if train.units is None else train.units[rows])
    schema = dataset.schema.model_copy(update={"num_units": len(units)})
    return Dataset(schema, split, None, dataset.partition_key)


def rows_of_units(dataset: Dataset, units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of training records of `units`."""
    rows: NDArray[np.int64] = np.flatnonzero(np.isin(dataset.train.unit_ids, units))
    return rows


def split_generator(dataset: Dataset, seed: int) -> np.random.Generator:
    """Return a generator that chooses candidates by the key of the data set: nobody without it can repeat the split."""
    digest = hashlib.sha256(b"audit/split\x00" + dataset.partition_key + seed.to_bytes(8, "little")).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def _score(name: str, evidence: Evidence, mu: float | None) -> AttackResult:
    attack = MEMBERSHIP[name]
    scores = attack.score(evidence)
    figures = measure(scores[evidence.is_member], scores[~evidence.is_member], mu)
    return AttackResult(attack=name, source=attack.source, figures=figures)
