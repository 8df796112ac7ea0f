"""`python -m datalens_service.cli`, the same as `datalens`."""

from datalens_service.cli import main

main()
