"""Runs revisions on the connection that `Database.migrate` opened, inside its transaction."""

from alembic import context

given = context.config.attributes
# The metadata for their rules of naming.
context.configure(connection=given["connection"], target_metadata=given["metadata"])
context.run_migrations()
