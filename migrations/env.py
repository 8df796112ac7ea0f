"""Runs revisions on the connection that `Database.migrate` opened, inside its transaction."""

from __future__ import annotations

from alembic import context

from datalens_service.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    compare_type=True,
    render_as_batch=True,
    user_module_prefix="tables.",
)
context.run_migrations()
