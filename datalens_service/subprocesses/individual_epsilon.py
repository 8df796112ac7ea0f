"""Realised individual ε of one record, from released iterates and this record alone.

No data set, no database, no job: anybody who holds the record and the file gets the same number. The service does it
in a process of its own, because it needs torch:

    python -m datalens_service.subprocesses.individual_epsilon ITERATES IMAGES LABELS OUT
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from datalens_service.base.errors import InvalidInput, StateConflict
from datalens_service.base.fields import Stated
from datalens_service.data.dataset import Images, Schema
from datalens_service.mechanisms import GradientSum
from datalens_service.mechanisms.private_records import Rows
from datalens_service.mechanisms.unit_records import UnitRows, as_tensors
from datalens_service.methods import DpSgd, Plan
from datalens_service.methods.descent.iterates import Iterates, read_iterates
from datalens_service.privacy.accounting import round_up
from datalens_service.privacy.individual import level_counts, norm_levels, with_margin
from datalens_service.privacy.randomness import Integers
from datalens_service.subprocesses.child_program import end_with, say_what_is_missing

MEANING: Final = (
    "What the releases of the job happened to cost a record like this one, by its gradients at the released iterates. "
    "It is computed from these and the image alone, and says nothing about whether the record is in the data set. It "
    "is no guarantee: that is epsilon_of_job, for every record."
)


class RealisedEpsilon(BaseModel):
    """The answer; ε are rounded up."""

    model_config = ConfigDict(frozen=True)

    epsilon: Stated = Field(ge=0, description="Realised individual ε of the record, if it is one of the data set.")
    epsilon_of_job: Stated = Field(ge=0, description="What every record is guaranteed.")
    delta: Stated
    steps: int = Field(description="Released iterates that it was computed from.")
    meaning: str = MEANING


class ReleasedDescent:
    """A released descent, as its file describes it.

    Raises:
        InvalidInput: It is another file.
    """

    def __init__(self, path: Path) -> None:
        self._values, description = read_iterates(path)
        try:
            self._read(description)
        except (ValidationError, KeyError, TypeError) as error:
            raise InvalidInput("The file does not describe a descent that this version knows.") from error

    def _read(self, description: dict[str, Any]) -> None:
        self._method = DpSgd.model_validate(description["method"])
        self._plan = Plan.model_validate(description["plan"])
        self.schema = Schema.model_validate(description["schema"])
        mechanism = self._plan.releases[0].mechanism
        if not isinstance(mechanism, GradientSum):
            raise TypeError("noisy directions have no clipped gradients")
        self._mechanism = mechanism
        self._epsilon, self._delta = float(description["epsilon"]), float(description["delta"])

    def realise_epsilon(self, images: Images, label: int) -> RealisedEpsilon:
        """Compute the cost of the job to a record.

        Args:
            images: uint8 (1, height, width, channels).

        Raises:
            InvalidInput: The image or the label does not fit the data set.
            StateConflict: ε belongs to units of several records.
            WorkerUnavailable: torch or dp_accounting is missing.
        """
        check_one_record(self.schema, label)
        expected = (1, self.schema.height, self.schema.width, self.schema.channels)
        if images.dtype != np.uint8 or images.shape != expected:
            raise InvalidInput(f"Send one image of {self.schema.width} by {self.schema.height} pixels.")
        with say_what_is_missing("Computing an ε of its own"):
            return self._realise_epsilon(images, label)

    def _realise_epsilon(self, images: Images, label: int) -> RealisedEpsilon:
        from datalens_service.methods.descent.individual_norms import build_accountant

        mechanism, rows = self._mechanism, Rows(images, np.array([label]), np.zeros(1, dtype=np.int64))
        other_ledger_units = sum(release.cost() for release in self._plan.releases[1:])
        accountant = build_accountant(mechanism, self._epsilon, other_ledger_units)
        counts = level_counts(self._levels(as_tensors(rows, "cpu"), self._values))
        epsilon = min(self._epsilon, round_up(accountant.epsilon(counts, self._delta)))
        return RealisedEpsilon(
            epsilon=epsilon, epsilon_of_job=self._epsilon, delta=self._delta, steps=len(self._values)
        )

    def _levels(self, rows: UnitRows, values: Iterates) -> Integers:
        from datalens_service.methods.descent.individual_norms import squared_norms
        from datalens_service.methods.descent.unit_gradients import image_gradients
        from datalens_service.models.classifiers.architectures import build_network

        network = build_network({"architecture": self._method.architecture}, self.schema)
        gradients = image_gradients(network, self.schema, records_at_once=1)
        norms, radius = squared_norms(rows, gradients, self._mechanism, values), self._mechanism.radius
        return norm_levels(with_margin(norms, radius), radius)[:, 0]


def check_one_record(schema: Schema, label: int) -> None:
    """Refuse a label that is no class, and data sets whose units are more than one record.

    Raises:
        InvalidInput: There is no such class.
        StateConflict: ε belongs to a unit.
    """
    if not 0 <= label < schema.num_classes:
        raise InvalidInput(f"⟦record.label⟧ must be the index of a class, from 0 to {schema.num_classes - 1}.")
    if schema.records_per_unit > 1:
        raise StateConflict("Units of this data set have several records: one record alone has no ε of its own.")


def write_epsilon(iterates_path: Path, images_path: Path, labels_path: Path, out_path: Path) -> None:
    """Compute and write JSON.

    Raises:
        InvalidInput: The iterates, the image or the label cannot be used.
        WorkerUnavailable: torch or dp_accounting is missing.
    """
    image, labels = (np.load(path, allow_pickle=False) for path in (images_path, labels_path))
    answer = ReleasedDescent(iterates_path).realise_epsilon(image, int(labels[0]))
    out_path.write_text(json.dumps(answer.model_dump()), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute as the command line says, and return the exit status of `child_program`."""
    return end_with(lambda *paths: write_epsilon(*map(Path, paths)), arguments)


if __name__ == "__main__":
    sys.exit(main())
