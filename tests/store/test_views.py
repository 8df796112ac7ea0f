"""An upload is one record under one id, whatever became of it."""

import pytest

from datalens_service.base.clock import utc_now
from datalens_service.base.errors import NotFound
from datalens_service.store.access import keys
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, uploads, views
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.schema.tables import DEFAULT_TENANT, IntakeRow

from .books import images, new_dataset


@pytest.fixture
def key_id(database: Database) -> str:
    return keys.create(database, "laptop")[0].id


def check(database: Database, key_id: str, dataset_id: str, state: DatasetState) -> None:
    with database.transaction() as session:
        row = IntakeRow(dataset_id=dataset_id, key_id=key_id, state=state, form={"name": "cats"}, created_at=utc_now())
        session.add(row)


def test_an_upload_that_became_a_data_set_is_listed_once(database: Database, key_id: str) -> None:
    dataset = new_dataset(database)
    check(database, key_id, dataset.id, DatasetState.READY)
    (view,) = views.list_views(database, DEFAULT_TENANT).items
    assert view == views.get(database, dataset.id)
    assert (view.id, view.name, view.state, view.contents) == (dataset.id, "pets", DatasetState.READY, dataset)


@pytest.mark.parametrize("state", [DatasetState.VALIDATING, DatasetState.REVIEW, DatasetState.INVALID])
def test_an_upload_without_a_data_set_has_a_state_and_no_contents(
    database: Database, key_id: str, state: DatasetState
) -> None:
    check(database, key_id, "ds_new", state)
    view = views.get(database, "ds_new")
    assert (view.name, view.state, view.deleted_at, view.contents) == ("cats", state, None, None)
    uploads.delete(database, "ds_new")
    assert views.get(database, "ds_new").state is DatasetState.DELETED
    assert views.get(database, "ds_new").deleted_at is not None
    assert views.list_views(database, DEFAULT_TENANT).items == ()


@pytest.mark.both_databases
def test_both_kinds_are_one_list(database: Database, key_id: str) -> None:
    first = new_dataset(database)
    check(database, key_id, "ds_new", DatasetState.VALIDATING)
    last = new_dataset(database, images(1))
    datasets.delete(database, last.id)
    newest = views.list_views(database, DEFAULT_TENANT, limit=2)
    oldest = views.list_views(database, DEFAULT_TENANT, limit=2, cursor=newest.next_cursor)
    listed = [(view.id, view.state) for view in (*newest.items, *oldest.items)]
    assert listed == [
        (last.id, DatasetState.DELETED),
        ("ds_new", DatasetState.VALIDATING),
        (first.id, DatasetState.READY),
    ]
    assert oldest.next_cursor is None


def test_an_unknown_upload_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        views.get(database, "ds_nothing")
