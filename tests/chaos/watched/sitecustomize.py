"""Loaded by every Python process of the service under test: a job process notes each draw of noise before it happens.

The note is a line in a file of its own, so the number of draws is known without asking the database.
"""

import os
import sys
from pathlib import Path

if {"datalens_service.workers.fork_jobs", "datalens_service.workers.run_job"} & {*sys.orig_argv}:
    from datalens_service.privacy.randomness import NoiseSource

    _draw = NoiseSource.discrete_gaussian

    def _noted(source: NoiseSource, *arguments: object, **named: object) -> object:
        path = Path(os.environ["CHAOS_DRAWS"]) / sys.argv[-1]
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, b"draw\n")
        os.close(descriptor)
        return _draw(source, *arguments, **named)  # type: ignore[arg-type]

    NoiseSource.discrete_gaussian = _noted  # type: ignore[method-assign]
