"""Round numbers for axes, whatever ε a job was given."""

import numpy as np

from datalens_service.evaluation.report.drawing import ticks


def test_every_axis_has_four_to_nine_ticks() -> None:
    for largest in [*np.geomspace(1e-4, 1e4, 2001), 8.0, 8.4, 9.999, 10.0, 80.1]:
        found = ticks(float(largest))
        assert 4 <= len(found) <= 9, largest
        assert found[0] == 0
        assert found[-1] <= largest
