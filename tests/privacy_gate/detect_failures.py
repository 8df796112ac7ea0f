"""Detectors on what a failed computation over records tells: that it was paid for, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch

from datalens_service.base.errors import ContributionFailed
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.jobs import execute
from datalens_service.mechanisms import GradientSum, PlannedRelease, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.mechanisms.unit_records import UnitRecords, UnitRows
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.driver import Training
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script
from datalens_service.methods.sums import moments
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import MOMENTS

from .alarm import expect
from .detect_jobs import _execute, worlds
from .detect_ledger import deployment

_SUM = VectorSum(num_groups=1, dimensions=1, noise_stddev=20_000)
_GRADIENTS = GradientSum(dimensions=1, clip_norm=1.0, noise_stddev=300_000)
_EVENTS: list[str] = []


class _Account(MemoryAccount):  # type: ignore[misc]
    """Charges are noted among other events."""

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        _EVENTS.append("charge")
        super().charge(step, label, ledger_units, slack)


def bright(rows: Rows, _released: None) -> GroupedVectors:
    """An honest check, and an error that tells what it found."""
    _EVENTS.append("sum")
    raise ArithmeticError(f"images are too bright: {rows.values.mean()}")


def bright_units(rows: UnitRows, _released: None) -> Iterator[torch.Tensor]:
    """The same of units, after the first."""
    _EVENTS.append("sum")
    yield rows.images[:1].flatten(1)[:, :1].float()
    raise ArithmeticError(f"images are too bright: {rows.images.float().mean()}")


class _Skipping(Method):
    """A method that leaves out a step that fails."""

    facts = replace(moments.Moments.facts, title="Skipping")
    name: Literal["skipping"] = "skipping"
    of_units: bool = False

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        return Plan(releases=(PlannedRelease(mechanism=_GRADIENTS if self.of_units else _SUM),))

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        try:
            if self.of_units:
                yield Ask(UnitRecords(records, "cpu"), _GRADIENTS, bright_units, None)
            else:
                yield Ask(records, _SUM, bright, None)
        except Exception:  # noqa: BLE001 (what it should never see)
            _EVENTS.append("skipped")
        return Outcome(None)  # type: ignore[arg-type]


def what_a_contribution_raises_is_paid_for_and_tells_nothing(rng: np.random.Generator) -> None:
    """R40, R4: the charge comes first, the script learns nothing, and the error is the same over any records."""
    for of_units in (False, True):
        errors = [_failure(_Skipping(of_units=of_units), rng.integers(0, 256, (9, 4, 4, 1))) for _ in range(2)]
        expect(str(errors[0]) == str(errors[1]), "an error is the same over other records")


def _failure(method: _Skipping, images: np.ndarray) -> BaseException:
    schema = Schema(channels=1, height=4, width=4, class_names=("a",), num_units=len(images))
    data = Dataset(schema, Split(images.astype(np.uint8), np.zeros(len(images), dtype=np.int64)), None, b"k" * 32)
    _EVENTS.clear()
    inputs = RunInputs(TrainingRandomness(0))
    training = Training(method, method.plan(schema, 0), data, _Account(10**30), inputs)
    raised: BaseException | None = None
    try:
        training.step(NoiseSource())
        training.look()
    except Exception as error:  # noqa: BLE001 (whatever comes out is looked at)
        raised = error
    expect(isinstance(raised, ContributionFailed), "a contribution that raises ends the run by one error")
    expect(_EVENTS == ["charge", "sum"], "a release is charged before it is summed, and a script catches nothing")
    assert raised is not None
    expect(raised.__cause__ is None and raised.__context__ is None, "the error carries no other")
    return raised


def dark(rows: Rows, measured: Any) -> GroupedVectors:
    """As `bright`, in a job."""
    raise ArithmeticError(f"images are too dark: {rows.values.mean()}")


def a_job_says_nothing_of_what_a_contribution_raised(_rng: np.random.Generator) -> None:
    """R27: the problem of a failed job is the same over other records."""
    problems = []
    for dataset in worlds():
        with deployment() as local, mock.patch.object(moments, "class_vectors", dark):
            job = local.submit(MOMENTS, local.upload(dataset))
            with mock.patch.object(execute, "log"):
                ended = _execute(local, job.id)
            expect(ended.state is JobState.FAILED, "a job whose contribution raises has failed")
            expect(ended.charged_units > 0, "what it asked for is charged")
            problems.append(ended.error)
    expect(problems[0] == problems[1], "why a job failed does not depend on records")
    expect(problems[0]["type"] == "contribution-failed", "a failed contribution has a problem type of its own")
