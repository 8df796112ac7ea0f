"""Uploads that are no data set yet: whoever asks for one as if it were is told what it waits for."""

from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import DatalensError, NotFound, StateConflict
from datalens_service.store.schema.tables import ApiKeyRow, IntakeRow

_WAITS_FOR: Final = {
    "validating": "The upload is still being read, so it has no budget yet. Look again in a moment.",
    "review": "The upload waits for the confirmation of its class names, so it has no budget yet. Look at them, then "
    "confirm them: ⟦confirmation⟧.",
    "invalid": "The upload cannot be used, so it has no budget; its validation report says why.",
}


def explain_absence(reader: Session | Connection, dataset_id: str, *, tenant_id: str | None = None) -> DatalensError:
    """Say why there is no data set of this id: it does not exist, or its upload was not opened.

    Args:
        tenant_id: Tenant that asks, for whom uploads of others do not exist. None if that was checked before.
    """
    query = select(IntakeRow.state, ApiKeyRow.tenant_id).join(ApiKeyRow, ApiKeyRow.id == IntakeRow.key_id)
    upload = reader.execute(query.where(IntakeRow.dataset_id == dataset_id)).one_or_none()
    if upload is None or tenant_id not in (None, upload.tenant_id) or upload.state not in _WAITS_FOR:
        return NotFound("There is no such data set.")
    return StateConflict(_WAITS_FOR[upload.state])
