"""DataLens: teacher discriminators vote per image, the noisy vote moves a student generator.

DataLens (CCS 2021); options of our own are marked in docs/methods.md.
"""

from typing import final

from datalens_service.mechanisms.private_records import PrivateRecords
from datalens_service.methods.base import ExecutionOptions, Plan, TrainingRun
from datalens_service.methods.voting.parameters import DataLensParameters
from datalens_service.privacy.randomness import TrainingRandomness


@final
class DataLens(DataLensParameters):
    """Parameters of DataLens; the defaults are the original's for MNIST at ε = 1, with a smaller teacher.

    Exactly what the budget pays for is derived: with `noise_stddev` given, the number of steps; with `steps`
    given, the noise; with both, the smaller run.
    """

    def start_run(
        self, plan: Plan, records: PrivateRecords, randomness: TrainingRandomness, options: ExecutionOptions
    ) -> TrainingRun:
        """A run of the releases of `plan`."""
        from datalens_service.methods.voting.training_run import DataLensRun

        return DataLensRun(self, plan, records, randomness, options)
