"""DP-SGD: a classifier by noisy clipped gradients of a whole network.

Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1, on all records in every step or on batches
drawn by Poisson sampling. A step is one `GradientSum` with exact noise. Sampled steps are charged as one block
(docs/mechanisms/poisson_sampling.md). With `noise: von_mises_fisher` a step is one `VonMisesFisherSum` over a batch of
a partition (docs/mechanisms/von_mises_fisher.md).
"""

import math
from typing import Final, Self

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum, IndividualHistogram, PlannedRelease, VonMisesFisherSum
from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import Plan
from datalens_service.methods.descent.dp_sgd_parameters import DpSgdParameters, plan_descent, summed_units
from datalens_service.methods.descent.iterates import bytes_of_iterates, check_room
from datalens_service.methods.descent.noisy_directions import WEAKEST_SIGNAL, PartitionedRun, drowned_directions
from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.methods.script import RunInputs, Script
from datalens_service.methods.sums.record_sums import calibrate
from datalens_service.models.classifiers.sizes import fits_scattering, largest_scattering_size, num_weights
from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, limit_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

_BATCHES_PER_PASS: Final = 100

_LOUDEST_HISTOGRAM: Final = 0.05
"""Length of a histogram's noise over the number of units, above which its statistics are far off."""


class DpSgd(DpSgdParameters):
    """Parameters of noisy gradient descent on all weights of a network."""

    def settle(self, schema: Schema, epsilon: float, delta: float) -> Self:
        """Fill in steps, batches, rate and network where they were left out.

        Nothing is planned for named noise, kept iterates or Adam, which need other values.
        """
        usual = self.noise_multiplier is None and self.optimizer == "sgd" and self.accounting == "uniform"
        if self.noise != "gaussian" or not usual:
            return self
        named = self.model_dump(include=self.model_fields_set)
        return self.model_validate({**named, **plan_descent(schema, epsilon, delta, named)})

    def plan(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan as many gradients as were asked for and fit."""
        if self.sampling == "partition":
            return self._directions(schema, ledger_units)
        if self.sampling == "poisson" or self.histogram_noise is not None:
            raise InvalidSpec("Sampled gradients and a histogram are planned for ε and δ.")
        return self._with_room(Plan(releases=(self._descent(schema, ledger_units),)))

    def plan_within(self, schema: Schema, epsilon: float, delta: float) -> Plan:
        """Plan as many gradients as were asked for; on all records, no more than fit beside the histogram."""
        if self.sampling == "partition":
            return self._directions(schema, limit_units(epsilon, delta))
        last = self._histogram(schema, epsilon, delta)
        paid = sum(release.cost() for release in last)
        if self.sampling == "none":
            first: tuple[PlannedRelease, ...] = (self._descent(schema, limit_units(epsilon, delta) - paid),)
        else:
            sampled = SampledRun(schema.num_units, self._batch(schema), self.steps, self.slack)
            first = sampled.plan(self._gradient_sum(schema), self.noise_multiplier, epsilon, delta, paid).releases
        return self._with_room(Plan(releases=(*first, *last)))

    def kept_bytes(self, plan: Plan) -> int:
        release = plan.releases[0]
        if self.accounting == "uniform" or not isinstance(release.mechanism, GradientSum):
            return 0
        return bytes_of_iterates(release.count, release.mechanism.dimensions)

    def _with_room(self, plan: Plan) -> Plan:
        check_room(self.kept_bytes(plan))
        return plan

    def _batch(self, schema: Schema) -> int:
        return self.batch or math.ceil(schema.num_units / _BATCHES_PER_PASS)

    def _directions(self, schema: Schema, ledger_units: int) -> Plan:
        """Plan noisy directions over a partition of all units."""
        dimensions = num_weights(self.architecture, schema)
        return PartitionedRun(schema, dimensions, self._batch(schema), self.steps).plan(self.kappa, ledger_units)

    def _descent(self, schema: Schema, ledger_units: int) -> PlannedRelease:
        """Plan the gradients of all records that fit into `ledger_units`."""
        mechanism = self._gradient_sum(schema)
        if ledger_units <= 0:
            raise InfeasiblePlan("ε does not pay for a step beside the histogram: raise ⟦spec.epsilon⟧.")
        if self.noise_multiplier is not None:
            stddev = max(MINIMUM_NOISE_STDDEV, math.ceil(self.noise_multiplier * mechanism.radius))
            if stddev > MAXIMUM_NOISE_STDDEV:
                raise InfeasiblePlan("⟦method.noise_multiplier⟧ is larger than the sampler can draw.")
            noisy = mechanism.model_copy(update={"noise_stddev": stddev})
            affordable = ledger_units // noisy.cost()
            if affordable == 0:
                raise InfeasiblePlan("ε does not pay for one step: raise ⟦spec.epsilon⟧ or ⟦method.noise_multiplier⟧.")
            return PlannedRelease(mechanism=noisy, count=min(self.steps, affordable))
        return calibrate(mechanism, ledger_units / self.steps).model_copy(update={"count": self.steps})

    def _histogram(self, schema: Schema, epsilon: float, delta: float) -> tuple[PlannedRelease, ...]:
        """Plan the histogram as the last release, if it was asked for."""
        if self.histogram_noise is None:
            return ()
        passes_apart = 1 if self.sampling == "none" else max(1, schema.num_units // (2 * self._batch(schema)))
        mechanism = IndividualHistogram(
            num_units=schema.num_units,
            largest_epsilon=epsilon,
            delta=delta,
            every=self.histogram_every or passes_apart,
            noise_stddev=self.histogram_noise,
        )
        return (PlannedRelease(mechanism=mechanism),)

    def _gradient_sum(self, schema: Schema) -> GradientSum:
        """Return the release of gradients before its noise is chosen."""
        dimensions = num_weights(self.architecture, schema)
        return GradientSum(dimensions=dimensions, clip_norm=self.longest_row, noise_stddev=MAXIMUM_NOISE_STDDEV)

    def warnings(self, plan: Plan, schema: Schema) -> tuple[str, ...]:
        first, last = plan.releases[0].mechanism, plan.releases[-1].mechanism
        descent = (_drowned(first, schema),) if isinstance(first, GradientSum) else ()
        directions = (drowned_directions(first),) if isinstance(first, VonMisesFisherSum) else ()
        histogram = (_loud(last),) if isinstance(last, IndividualHistogram) else ()
        return tuple(warning for warning in (*descent, *directions, *histogram) if warning)

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        from datalens_service.methods.descent.dp_sgd_run import descend

        return descend(self, plan, records, inputs)


def _drowned(mechanism: GradientSum, schema: Schema) -> str:
    summed = summed_units(mechanism, schema.num_units)
    ratio = summed * mechanism.radius / (mechanism.noise_stddev * math.sqrt(mechanism.dimensions))
    if ratio >= WEAKEST_SIGNAL:
        return ""
    return (
        f"The noise of a step is {1 / ratio:.0f} times as long as the sum of gradients can be. The classifier will "
        f"learn little: raise epsilon, lower steps, or {_quieter(schema)}."
    )


def _quieter(schema: Schema) -> str:
    if fits_scattering(schema):
        return "choose the method scattering"
    size = largest_scattering_size(schema)
    return f"prepare the images at {size.width} by {size.height} pixels, at which the method scattering fits"


def _loud(mechanism: IndividualHistogram) -> str:
    share = mechanism.noise_stddev * math.sqrt(mechanism.bins) / mechanism.num_units
    if share <= _LOUDEST_HISTOGRAM:
        return ""
    return (
        f"The noise of the histogram of individual epsilon is as long as {100 * share:.0f} % of all units. Its mean "
        "and quantiles will be far off: lower histogram_noise, or leave it out."
    )
