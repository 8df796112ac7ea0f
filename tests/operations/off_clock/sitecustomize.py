"""Sets the clock of a Python process off by CLOCK_IS_OFF_BY seconds; imported by Python at its start.

In place of libfaketime, whose version 0.9.10 lets `time.sleep` of Python 3.11 fail.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, tzinfo

from datalens_service import clock

_OFFSET = int(os.environ["CLOCK_IS_OFF_BY"])
_true_time, _true_time_ns = time.time, time.time_ns


class Shifted(datetime):
    """What the product reads its clock by."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=_OFFSET)


clock.datetime = Shifted  # type: ignore[misc]
time.time = lambda: _true_time() + _OFFSET
time.time_ns = lambda: _true_time_ns() + _OFFSET * 10**9
