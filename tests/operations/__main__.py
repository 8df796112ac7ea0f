"""`scripts/operations NAME`: one promise of docs/observe.md, kept before your eyes; a report as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.environment import provenance

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
    sys.stdout.write(json.dumps({**provenance(), "load_average": os.getloadavg()[0], name: report}, indent=2) + "\n")
    return 0 if report["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
