"""Schema of the database: a new one is made whole, one of revision 0021 (before 1.0.0) or newer goes on by revisions.

Both are run by `datalens_service.store.database.Database.migrate`.
"""
