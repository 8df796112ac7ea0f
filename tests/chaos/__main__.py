"""`scripts/chaos --kills N`: a production stack under load while its parts are killed; a report as JSON.

`scripts/chaos --faults` makes each fault of `named_faults.py` once instead.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from datalens_service.services.overview import overview
from datalens_service.store.jobs.jobs import Job
from deployments.deployment import VOTES
from deployments.postgresql import roomy_memory
from deployments.stack import CeleryStack

from .audit import audit
from .faults import RECOVERY_SECONDS, Chaos, Fault
from .lost import NOTHING
from .named_faults import FAULTS

_SPEC: dict[str, Any] = {**VOTES, "method": {**VOTES["method"], "steps": 100}}
_IN_FLIGHT = 3
_ZERO = ("lost_jobs", "double_draws", "under_counts", "frozen_accounts", "bundles_that_do_not_recompute")


class Load:
    """Keeps a few jobs in flight, and remembers each stored sum it meets."""

    def __init__(self, stack: CeleryStack) -> None:
        self.ordered: list[Job] = []
        self.seen: dict[str, dict[int, str]] = {}
        self._stack = stack

    def top_up(self) -> None:
        """Submit until enough jobs wait or run."""
        found = overview(self._stack.database).jobs
        for _ in range(_IN_FLIGHT - found["queued"] - found["running"]):
            self.ordered.append(self._stack.order(_SPEC))

    def look(self) -> None:
        """Remember what is stored now; none of it may ever be another."""
        for job in self.ordered[-2 * _IN_FLIGHT :]:
            for step, digest in self._stack.stored_steps(job).items():
                self.seen.setdefault(job.id, {}).setdefault(step, digest)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="Kills parts of a running service at random.")
    parser.add_argument("--kills", type=int, default=300, help="faults to make (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of faults (default: random)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop making faults after this long")
    parser.add_argument(
        "--faults", nargs="*", choices=FAULTS, help="make each fault that has a name, or those named, once, instead"
    )
    arguments = parser.parse_args()
    if arguments.faults is not None:
        return _make_named_faults(arguments.faults or list(FAULTS))
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory(prefix="dlchaos", dir=roomy_memory()) as folder:
        report = _run(Path(folder), arguments.kills, arguments.seconds, seed)
    print_result(report)
    return 0 if report["passed"] else 1


def _make_named_faults(names: list[str]) -> int:
    passed = True
    for name in names:
        with tempfile.TemporaryDirectory(prefix="dlchaos", dir=roomy_memory()) as folder:
            began = time.monotonic()
            figures = FAULTS[name](Path(folder))
        figures["passed"] = figures["passed"] and figures.get("lost", NOTHING) == NOTHING
        print_result({**provenance(), "fault": name, "took_seconds": round(time.monotonic() - began), **figures})
        passed = passed and figures["passed"]
    return 0 if passed else 1


def _run(folder: Path, kills: int, seconds: float, seed: int) -> dict[str, Any]:
    draws = folder / "draws"
    draws.mkdir()
    watched = Path(__file__).parent / "watched"
    stack = CeleryStack(folder)
    stack.changes |= {
        "PYTHONPATH": os.pathsep.join([str(watched), os.environ.get("PYTHONPATH", "")]),
        "CHAOS_DRAWS": str(draws),
        # A job that is hit again and again is not one whose memory does not suffice.
        "DATALENS_MAX_ATTEMPTS": "100",
        "DATALENS_LEASE_SECONDS": "5",
    }
    started = time.monotonic()
    try:
        stack.serve()
        stack.start_worker()
        load = Load(stack)
        faults = _storm(stack, load, kills, started + seconds, random.Random(seed))  # noqa: S311 (choice of faults)
        for job in load.ordered:
            stack.wait_for_end(job)
        found = audit(stack, load.ordered, load.seen, draws)
    finally:
        stack.close()
    return _report(faults, found, len(load.ordered), seed, time.monotonic() - started)


def _storm(stack: CeleryStack, load: Load, kills: int, until: float, rng: random.Random) -> list[Fault]:
    chaos, faults = Chaos(stack, rng), list[Fault]()
    while sum(len(fault.parts) for fault in faults) < kills and time.monotonic() < until:
        load.top_up()
        time.sleep(rng.uniform(0, 2))
        load.look()
        faults.append(chaos.strike())
        sys.stderr.write(f"{len(faults)}: {' and '.join(faults[-1].parts)}, {faults[-1].seconds:.1f} s\n")
    return faults


def _report(faults: list[Fault], found: dict[str, Any], jobs: int, seed: int, seconds: float) -> dict[str, Any]:
    parts = [part for fault in faults for part in fault.parts]
    recoveries = sorted(fault.seconds for fault in faults)
    slowest = recoveries[-1] if recoveries else 0.0
    return {
        **provenance(),
        "stack": "celery + Redis + PostgreSQL",
        "seed": seed,
        "kills": len(parts),
        "kills_by_part": {part: parts.count(part) for part in sorted(set(parts))},
        "jobs": jobs,
        **found,
        "recovery_seconds": {"median": round(recoveries[len(recoveries) // 2], 1), "slowest": round(slowest, 1)},
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "seconds": round(seconds),
        "passed": all(found[name] == 0 for name in _ZERO) and slowest <= RECOVERY_SECONDS,
    }


if __name__ == "__main__":
    sys.exit(main())
