"""Schema of the database as a sequence of revisions; run by `datalens_service.store.database.Database.migrate`."""
