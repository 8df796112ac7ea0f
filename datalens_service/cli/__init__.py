"""The command line `datalens`."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `datalens` command."""
    from datalens_service.cli.app import app

    app()
