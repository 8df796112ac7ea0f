"""`scripts/operations NAME`: one promise of docs/observe.md, kept before your eyes; a report as JSON."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result

from . import clocks, history, recovery, replicas

_SHOWN: dict[str, Callable[[], dict[str, Any]]] = {
    "recovery": recovery.show,
    "clocks": clocks.show,
    "history": history.show,
    "replicas": replicas.show,
}


def main() -> int:
    """Show one; 0 if the promise was kept."""
    parser = argparse.ArgumentParser(prog="scripts/operations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(_SHOWN))
    name = parser.parse_args().name
    report = _SHOWN[name]()
    print_result({**provenance(), "load_average": os.getloadavg()[0], name: report})
    return 0 if report["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
