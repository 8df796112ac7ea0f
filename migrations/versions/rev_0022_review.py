"""Uploads wait for the confirmation of their class names before a budget opens."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_STATES = "state IN ('validating', 'review', 'ready', 'invalid', 'deleted')"
_INTAKES = sa.table("intakes", sa.column("dataset_id"), sa.column("state"), sa.column("form", sa.JSON()))


def upgrade() -> None:
    """A further state; what an older version registered and was killed before noting is noted as ready."""
    with op.batch_alter_table("intakes") as intakes:
        intakes.drop_constraint(op.f("ck_intakes_state_known"), type_="check")
        intakes.create_check_constraint(op.f("ck_intakes_state_known"), _STATES)
    registered = _INTAKES.c.dataset_id.in_(sa.select(sa.table("datasets", sa.column("id")).c.id))
    op.execute(_INTAKES.update().where(registered, _INTAKES.c.state == "validating").values(state="ready"))
    _rename_declared_names()


def _rename_declared_names() -> None:
    """Uploads that are still to be read name their classes by the word of this version."""
    for dataset_id, form in op.get_bind().execute(sa.select(_INTAKES.c.dataset_id, _INTAKES.c.form)).all():
        if "classes" in form:
            renamed = {"class_names" if name == "classes" else name: value for name, value in form.items()}
            op.execute(_INTAKES.update().where(_INTAKES.c.dataset_id == dataset_id).values(form=renamed))
