"""Rows of the database as objects: what leaves a transaction is a copy, with times as they may be told."""

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import NotFound
from datalens_service.base.fields import read_members

Kind = TypeVar("Kind")
Row = TypeVar("Row")


def copy_row(kind: type[Kind], row: Any, **others: Any) -> Kind:
    """A data class with what a row has under the names of its members, times to the second.

    Args:
        others: Members that the row lacks, or that differ from its own.
    """
    values = read_members(kind, row, others)
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = to_second(value)
    return kind(**values, **others)


def get_or_refuse(session: Session, table: type[Row], identifier: str, what: str, *, lock: bool = False) -> Row:
    """The row of an id.

    Args:
        what: The word for it.
        lock: Until the end of the transaction; it is read anew then.

    Raises:
        NotFound: There is none.
    """
    row = session.get(table, identifier, with_for_update=lock or None, populate_existing=lock)
    if row is None:
        raise NotFound(f"There is no such {what}.")
    return row
