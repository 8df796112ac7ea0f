"""Runs revisions on the connection that `Database.migrate` opened, inside its transaction."""

from alembic import context

from datalens_service.store.schema.tables import Base

# The metadata for their rules of naming.
context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
