"""Revisions of the schema: a database of revision 0021 (shortly before 1.0.0) or newer goes on by them.

`datalens_service.store.database.Database.migrate` runs them. It makes a new database whole, by
`datalens_service.store.schema.new_database`, so nothing in here imports the store.
"""
