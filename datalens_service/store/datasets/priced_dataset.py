"""What the price of a job depends on: the public schema of its data set, and the account that pays. One statement."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Text, bindparam, cast, select

from datalens_service.data.dataset import Schema
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.ledger.account_summary import AccountSummary, of_account
from datalens_service.store.tables import AccountRow, DatasetRow
from datalens_service.store.unopened_uploads import absence

_BY_ID: Final = (
    select(
        *AccountRow.__table__.columns,
        DatasetRow.state.label("dataset_state"),
        cast(DatasetRow.schema, Text).label("dataset_schema"),
    )
    .join(DatasetRow, DatasetRow.account_id == AccountRow.id)
    .where(DatasetRow.id == bindparam("dataset_id"), DatasetRow.tenant_id == bindparam("tenant_id"))
)


@dataclass(frozen=True)
class PricedDataset:
    """A data set as it was when it was read."""

    state: DatasetState
    schema: Schema
    account: AccountSummary

    @property
    def account_id(self) -> str:
        """Who pays."""
        return self.account.account_id


def read_priced(connection: Connection, tenant_id: str, dataset_id: str) -> PricedDataset:
    """One data set of a tenant.

    Args:
        connection: Of `Database.connection`.
        tenant_id: Whose.
        dataset_id: Which.

    Raises:
        NotFound: The tenant has no such data set.
        StateConflict: Its upload was not opened yet.
    """
    row: Any = connection.execute(_BY_ID, {"dataset_id": dataset_id, "tenant_id": tenant_id}).one_or_none()
    if row is None:
        raise absence(connection, dataset_id, tenant_id=tenant_id)
    return PricedDataset(DatasetState(row.dataset_state), _parse_schema(row.dataset_schema), of_account(row))


@functools.lru_cache(maxsize=256)
def _parse_schema(text: str) -> Schema:
    return Schema.model_validate_json(text)
