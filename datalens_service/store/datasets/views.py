"""One record per upload for those who read: what its owner declared, its state, and the data set it became.

Two tables stand behind it. `datasets` has what an account pays for and is never deleted from; `intakes` has how the
upload came, and its private report.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from sqlalchemy import Select, Text, cast, or_, select, union_all
from sqlalchemy.orm import Session

from datalens_service.base.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset
from datalens_service.store.datasets.uploads import StoredUpload
from datalens_service.store.paging import StoredPage, after, build_cursor, check_limit
from datalens_service.store.schema.tables import ApiKeyRow, DatasetRow, IntakeRow

_UNREGISTERED = (DatasetState.VALIDATING, DatasetState.REVIEW, DatasetState.INVALID)
"""An upload becomes ready in the transaction that registers it, and ready or deleted is all that it is from then on."""


@dataclass(frozen=True)
class DatasetView:
    """An upload as it was when it was read.

    Attributes:
        contents: The data set; None unless the upload is or was ready.
    """

    id: str
    name: str
    state: DatasetState
    created_at: datetime
    deleted_at: datetime | None
    contents: StoredDataset | None

    @classmethod
    def from_dataset(cls, dataset: StoredDataset) -> Self:
        return cls(dataset.id, dataset.name, dataset.state, dataset.created_at, dataset.deleted_at, dataset)

    @classmethod
    def from_upload(cls, validation: StoredUpload) -> Self:
        """Return the view of an upload that is being read, waits for its confirmation, or could not be used."""
        name = validation.form.get("name") or validation.dataset_id
        deleted_at = validation.finished_at if validation.state is DatasetState.DELETED else None
        return cls(validation.dataset_id, name, validation.state, validation.created_at, deleted_at, None)


def get(database: Database, dataset_id: str) -> DatasetView:
    """Return an upload, whatever its state."""
    with database.session() as session:
        found = _read(session, [dataset_id])
    if not found:
        raise NotFound("There is no such data set.")
    return found[dataset_id]


def list_views(
    database: Database,
    tenant_id: str,
    *,
    limit: int = 50,
    cursor: str | None = None,
    search: str | None = None,
    states: Collection[DatasetState] = tuple(DatasetState),
) -> StoredPage[DatasetView]:
    """Uploads of a tenant in some states, newest first.

    Deleted data sets are among them, as their accounts stay. Deleted uploads that never became one are not.
    """
    registered = select(DatasetRow.id, DatasetRow.created_at).where(DatasetRow.tenant_id == tenant_id)
    unregistered = select(IntakeRow.dataset_id.label("id"), IntakeRow.created_at).where(
        IntakeRow.state.in_(_UNREGISTERED),
        IntakeRow.key_id.in_(select(ApiKeyRow.id).where(ApiKeyRow.tenant_id == tenant_id)),
    )
    if search is not None:
        tagged = cast(DatasetRow.tags, Text).contains(json.dumps(search), autoescape=True)
        registered = registered.where(or_(DatasetRow.name.icontains(search, autoescape=True), tagged))
        unregistered = unregistered.where(IntakeRow.form["name"].as_string().icontains(search, autoescape=True))
    if set(states) != set(DatasetState):
        registered = registered.where(DatasetRow.state.in_(states))
        unregistered = unregistered.where(IntakeRow.state.in_(states))
    if cursor is not None:
        columns = (DatasetRow.created_at, DatasetRow.id), (IntakeRow.created_at, IntakeRow.dataset_id)
        registered = registered.where(after(cursor, columns[0], *columns))
        unregistered = unregistered.where(after(cursor, columns[1], *columns))
    both = union_all(*(_newest(each, check_limit(limit) + 1) for each in (registered, unregistered)))
    query = _newest(select(both.subquery()), limit + 1)
    with database.session() as session:
        rows = session.execute(query).all()
        found = _read(session, [row.id for row in rows[:limit]])
    items = tuple(found[row.id] for row in rows[:limit])
    last = rows[limit - 1] if len(rows) > limit else None
    return StoredPage(items=items, next_cursor=None if last is None else build_cursor(last.created_at, last.id))


def _newest(query: Select[str, datetime], most: int) -> Select[str, datetime]:
    """Select the newest of it; each of two lists by itself, so that an index has them in order."""
    identifier, created_at = query.selected_columns
    return select(query.order_by(created_at.desc(), identifier.desc()).limit(most).subquery())


def _read(session: Session, ids: Sequence[str]) -> dict[str, DatasetView]:
    """Uploads by their ids, in two statements."""
    registered = session.scalars(select(DatasetRow).where(DatasetRow.id.in_(ids)))
    found = {row.id: DatasetView.from_dataset(StoredDataset.from_row(row)) for row in registered}
    if others := set(ids) - found.keys():
        unregistered = session.scalars(select(IntakeRow).where(IntakeRow.dataset_id.in_(others)))
        found |= {row.dataset_id: DatasetView.from_upload(StoredUpload.from_row(row)) for row in unregistered}
    return found
