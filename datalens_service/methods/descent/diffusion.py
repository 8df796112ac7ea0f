"""Diffusion: a small denoiser that learns images from noisy clipped gradients, after a start from released samples.

    rejection or another warm start → samples → the denoiser learns from them (post-processing);
    then, `steps` times, one noisy gradient of the whole denoiser over a Poisson-sampled batch of records;
    the denoiser draws images, and the warm start's classifier says which class each of them shows (post-processing).

Denoising diffusion by DP-SGD is from Dockhorn et al. 2023, "Differentially Private Diffusion Models"; their start is
random. Gradients and their price are those of docs/mechanisms/gradient_sum.md and poisson_sampling.md.
"""

import math
from typing import Final

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Plan
from datalens_service.methods.descent.diffusion_parameters import DiffusionParameters
from datalens_service.methods.descent.dp_sgd_parameters import summed_units
from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.methods.last_layer.labelled_moments import LabelledMoments
from datalens_service.methods.last_layer.rejection import Rejection
from datalens_service.methods.script import RunInputs, Script
from datalens_service.models.generators.denoiser.denoiser_shape import BATCH, DenoiserShape
from datalens_service.privacy.accounting import compute_slack, delta_beside, limit_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

_BATCHES_PER_PASS: Final = 8
_LOUDEST_NOISE: Final = 2.0
"""Length of a step's noise over that of the largest sum of gradients, above which a plan warns."""
_SECONDS_PER_PRODUCT: Final = 4e-10
"""Time of one core for a weight at one place of the coarser grid: 1.7 ms for the gradient of a noisy image of MNIST."""
_LONGEST_SECONDS: Final = 2 * 3600
_LEARNING_LENGTH: Final = 0.27
"""Learning from a sample once takes this many times as long as a record's gradient."""


class Diffusion(DiffusionParameters):
    """A denoiser trained on records; constants were chosen on MNIST and Fashion-MNIST (docs/findings.md)."""

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Refuse: sampled gradients are not planned by μ² alone.

        Raises:
            InvalidSpec: Always.
        """
        raise InvalidSpec("Sampled gradients are planned for ε and δ.")

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """Plan the releases of the warm start, then one block of sampled gradients with the least noise that fits."""
        return self.plan_beside(schema, epsilon, delta, 0)

    def plan_beside(self, schema: Schema, epsilon: float, delta: float, other_ledger_units: int) -> Plan:
        """Plan as `plan_within` does, beside releases that cost `other_ledger_units` ledger units."""
        if self.start_stddev is not None and self.last_stddev() >= self.start_stddev:
            raise InvalidSpec("⟦method.end_stddev⟧ must be smaller than ⟦method.start_stddev⟧.")
        limit = limit_units(epsilon, delta_beside(compute_slack(delta, self.slack), delta))
        start = self.warm_start.plan(schema, math.floor(self.warm_start_share * (limit - other_ledger_units)))
        sampled = SampledRun(schema.num_units, self.expected_batch(schema), self.steps, self.slack)
        paid = other_ledger_units + start.cost()
        gradients = sampled.plan(self.gradient_sum(schema), self.noise_multiplier, epsilon, delta, paid)
        return Plan(releases=(*start.releases, *gradients.releases))

    def gradient_sum(self, schema: Schema) -> GradientSum:
        """Return the release of gradients of all weights, before its noise is chosen."""
        dimensions = DenoiserShape(schema, self.width, self.blocks).num_weights()
        return GradientSum(dimensions=dimensions, clip_norm=self.clip_norm, noise_stddev=MAXIMUM_NOISE_STDDEV)

    def expected_batch(self, schema: Schema) -> int:
        """Return the mean number of units in a batch."""
        return self.batch or math.ceil(schema.num_units / _BATCHES_PER_PASS)

    def gradient_seconds(self, schema: Schema) -> float:
        """Estimate, from public numbers, how long gradients take one core."""
        shape = DenoiserShape(schema, self.width, self.blocks)
        images = self.steps * self.expected_batch(schema) * schema.records_per_unit * self.noise_draws
        return _SECONDS_PER_PRODUCT * images * shape.num_weights() * math.prod(shape.coarse_grid)

    def refusal_of_public_data(self) -> str:
        if isinstance(self.warm_start, Rejection):
            return ""
        return "diffusion starts from public images only with ⟦method.warm_start⟧ rejection."

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        mechanism = plan.releases[-1].mechanism
        if not isinstance(mechanism, GradientSum):
            return ()
        units = summed_units(mechanism, schema.num_units)
        labels = self.warm_start.warnings(plan, schema) if isinstance(self.warm_start, LabelledMoments) else ()
        return (*labels, *self._about_noise(mechanism, units), *self._about_time(schema))

    def _about_noise(self, mechanism: GradientSum, units: float) -> tuple[str, ...]:
        noise = mechanism.noise_stddev * math.sqrt(mechanism.dimensions)
        times = noise / (units * mechanism.radius)
        if times <= _LOUDEST_NOISE:
            return ()
        return (
            f"The noise of a step is {times:.1f} times as long as the sum of gradients can be. Images will hardly "
            "differ from those of the warm start: raise ⟦spec.epsilon⟧, lower ⟦method.steps⟧, or choose the method "
            "rejection.",
        )

    def _about_time(self, schema: Schema) -> tuple[str, ...]:
        seconds = self.gradient_seconds(schema)
        if seconds < _LONGEST_SECONDS:
            return ()
        return (f"Training takes about {seconds / 3600:.0f} hours of one core: train on a graphics processor.",)

    def lengths(self, plan: Plan, schema: Schema, *, public: bool) -> dict[int, int]:
        """Estimate the warm start, and the time the denoiser learns from samples before its first gradient."""
        start, gradients = Plan(releases=plan.releases[:-1]), plan.releases[-1].mechanism
        if not isinstance(gradients, GradientSum):
            raise TypeError("the last releases of a diffusion plan are gradients")
        batch = summed_units(gradients, schema.num_units) * schema.records_per_unit * self.noise_draws
        learned = 1 + round(_LEARNING_LENGTH * self.pretraining_steps * BATCH / batch)
        return self.warm_start.lengths(start, schema, public=public) | {start.steps: learned}

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.methods.descent.diffusion_run import denoise

        return denoise(self, plan, records, inputs)
