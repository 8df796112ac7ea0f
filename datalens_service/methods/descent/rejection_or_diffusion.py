"""Rejection or diffusion: one noisy count estimates what the images show, and decides for the method that suits them.

    one noisy count of drawings, less the other records;
    then all releases of `rejection` where most are drawings, all those of `diffusion` where not.

Both are planned before, each for what the count leaves of the budget; one of them is charged. The choice is a function
of the released count, so it is covered by adaptive composition (docs/mechanisms/branches.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from datalens_service.base.errors import InvalidSpec
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum, PlannedRelease, VectorSum
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.descent.diffusion import Diffusion
from datalens_service.methods.facts import SAMPLES_AND_NETWORKS, Facts, Levels
from datalens_service.methods.last_layer.rejection import Rejection
from datalens_service.methods.script import Ask, RunInputs, Script
from datalens_service.methods.sums.content_count import count_drawings, plan_count, read_count
from datalens_service.models.generators.level_sets.level_sets import Content
from datalens_service.privacy.accounting import compute_slack, delta_beside, limit_units

_REASONS: Final[dict[str, str]] = {
    "drawings": "outlines were modelled instead of pixels",
    "objects": "a network learned by noisy gradients to turn noise into images",
}


class RejectionOrDiffusion(Method):
    """Parameters of both methods (docs/methods.md)."""

    facts = Facts(
        title="Rejection or diffusion", summary="a noisy count, then what `rejection` or `diffusion` releases",
        result="generator", public_images="start", levels=Levels(30, 300), memory=SAMPLES_AND_NETWORKS,
        measured_as="rejection_or_diffusion", image_seconds=2.5e-3,
    )  # fmt: skip

    name: Literal["rejection_or_diffusion"] = "rejection_or_diffusion"
    drawings: Rejection = Field(default=Rejection(), description="Parameters for images that are drawings.")
    objects: Diffusion = Field(
        default=Diffusion(), description="Parameters for other images. The warm start is the method `rejection`."
    )

    @model_validator(mode="after")
    def _content_is_measured_here(self) -> Self:
        if not isinstance(self.objects.warm_start, Rejection):
            raise ValueError(speak("⟦method.objects.warm_start⟧ has to be rejection."))
        if {self.drawings.warm_start.content, self.objects.warm_start.warm_start.content} != {"measured"}:
            raise ValueError("content is what this method measures: leave it out, or choose rejection or diffusion.")
        return self

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Refuse: sampled gradients are not planned by μ² alone.

        Raises:
            InvalidSpec: Always.
        """
        raise InvalidSpec("Sampled gradients are planned for ε and δ.")

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """Plan the count, then a branch for each content, with the slack of sampled gradients set aside for both."""
        limit = limit_units(epsilon, delta_beside(compute_slack(delta, self.objects.slack), delta))
        count = plan_count(schema, limit)
        paid = count.cost()
        drawings = self.choose_method("drawings").plan(schema, limit - paid)
        objects = self._denoiser().plan_beside(schema, epsilon, delta, paid)
        branches = {"drawings": _with_slack(drawings, objects.slack), "objects": objects.releases}
        return Plan(releases=(count,), branches=branches)

    def choose_method(self, content: Content) -> Rejection | Diffusion:
        """Return the method that is run on images of that content."""
        return self.drawings.with_content("drawings") if content == "drawings" else self._denoiser()

    def _denoiser(self) -> Diffusion:
        start = self.objects.warm_start
        if not isinstance(start, Rejection):
            raise TypeError("the warm start of objects is rejection")
        return self.objects.model_copy(update={"warm_start": start.with_content("objects")})

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        said = self._denoiser().warnings(plan.along("objects"), schema)
        return tuple(f"If the images show objects: {sentence}" for sentence in said)

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        if plan.branches:
            return {}
        branch = Plan(releases=plan.releases[1:])
        content: Content = "objects" if isinstance(branch.releases[-1].mechanism, GradientSum) else "drawings"
        lengths = self.choose_method(content).lengths(branch, schema, public=public)
        return {step + 1: length for step, length in lengths.items()}

    def describe_branch(self, branch: str) -> str:
        return f"By a noisy count, most images are {branch}: {_REASONS[branch]}."

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        resumed, count = inputs.resumed, plan.releases[0].mechanism
        if resumed is not None:
            content: Any = resumed.branch
            inputs = replace(inputs, resumed=resumed._replace(step=resumed.step - 1))
        else:
            content = read_count((yield Ask(records, count, count_drawings, None)))
        branch = Plan(releases=plan.branches[content])
        return (yield from self.choose_method(content).run(branch, records, inputs))


def _with_slack(plan: Plan, slack: int) -> tuple[PlannedRelease, ...]:
    """Charge the first release a slack, so that both branches cost the same of δ."""
    first = plan.releases[0]
    if not isinstance(first.mechanism, VectorSum):
        raise TypeError("a plan of rejection begins with a sum of vectors")
    mechanism = first.mechanism.model_copy(update={"slack": slack})
    return (first.model_copy(update={"mechanism": mechanism}), *plan.releases[1:])
