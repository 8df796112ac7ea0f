"""The newest jobs of a data set are found without a look at all of its jobs."""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """One index in place of another."""
    op.create_index(op.f("ix_jobs_dataset_id_created_at_id"), "jobs", ["dataset_id", "created_at", "id"])
    op.drop_index(op.f("ix_jobs_dataset_id"), "jobs")
