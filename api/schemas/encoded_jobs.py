"""Jobs as JSON: encoded once, and again when their row has changed."""

from __future__ import annotations

import functools
import json
from typing import Final

from api.addresses import address
from api.schemas.jobs import JobRead
from datalens_service.store.jobs.job_records import JobRecord
from datalens_service.store.jobs.jobs import JobState, read_record
from datalens_service.store.paging import Page
from datalens_service.voices import Voice, current_voice

_KEPT: Final = 2048


def encode_job(record: JobRecord) -> bytes:
    """The JSON of `JobRead`."""
    # The estimates of a running job depend on the time, too.
    return _encode(record) if record.state == JobState.RUNNING else _encode_once(record, address(""), current_voice())


def encode_page(page: Page[JobRecord]) -> bytes:
    """The JSON of `Page[JobRead]`."""
    items = b",".join(map(encode_job, page.items))
    has_more, cursor = json.dumps(page.next_cursor is not None), json.dumps(page.next_cursor)
    return b'{"items":[%b],"has_more":%b,"next_cursor":%b}' % (items, has_more.encode(), cursor.encode())


def _encode(record: JobRecord) -> bytes:
    return JobRead.of(read_record(record)).model_dump_json(by_alias=True).encode()


@functools.lru_cache(maxsize=_KEPT)
def _encode_once(record: JobRecord, _root_path: str, _voice: Voice) -> bytes:
    """Links of the answer begin with the root path, and its texts use the words of the reader."""
    return _encode(record)
