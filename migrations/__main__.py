"""`python -m datalens_service.migrations`: bring the database of the settings to this version's schema; check it.

It needs the database alone: no folder of private files and no log. API and workers do the same when they start; this
is for a deployment that wants it done, or refused, before they do.
"""

import sys

from datalens_service.base.errors import DatalensError
from datalens_service.base.settings import Settings
from datalens_service.store.database import Database


def main() -> int:
    """Migrate and check; 1 if the database does not answer or is not safe."""
    database = Database(Settings().url)
    try:
        database.migrate()
        database.check()
    except DatalensError as error:
        sys.stderr.write(f"{error.detail}\n")
        return 1
    finally:
        database.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(main())
