"""The command line `datalens`."""

import os


def main() -> None:
    """Entry point of the `datalens` command."""
    # Before torch is loaded: its threads spin while they wait, which is slow where other work runs beside it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from datalens_service.cli.app import app

    app()
