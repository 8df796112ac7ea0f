"""Clocks of machines decide nothing: an API host that is days ahead ends nothing, one that is behind admits nobody."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from sqlalchemy import update

from datalens_service.base.errors import InvalidInput, NotFound, StoreUnavailable, Unauthorized
from datalens_service.store.access import browser_sessions, keys, webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.database import Database
from datalens_service.store.database_clock import check_clock, read_clock
from datalens_service.store.datasets import upload_sessions
from datalens_service.store.schema.tables import ApiKeyRow

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Sets the clock of this machine, as the product reads it."""

    def turn(by: timedelta) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:
                return datetime.now(tz) + by

        monkeypatch.setattr("datalens_service.base.clock.datetime", Clock)

    return turn


def expiring_key(database: Database, lifetime: timedelta) -> tuple[str, str]:
    key, plain = keys.create(database, KeyRequest("short", expires_at=read_clock(database) + lifetime))
    return key.id, plain


@pytest.mark.postgres
def test_host_that_is_days_ahead_ends_nothing(
    postgresql_database: Database, set_clock: Callable[[timedelta], None]
) -> None:
    database = postgresql_database
    key_id, plain = expiring_key(database, MINUTE)
    session = browser_sessions.sign_in(database, plain)
    upload = upload_sessions.create(database, key_id, 10, MINUTE)
    set_clock(3 * DAY)
    other = browser_sessions.sign_in(database, plain)
    upload_sessions.remove_expired(database)
    assert upload_sessions.get(database, upload.id) == upload
    assert {browser_sessions.resume(database, one.token).key.id for one in (session, other)} == {key_id}
    assert keys.usable(database, key_id)
    set_clock(timedelta())
    assert browser_sessions.resume(database, session.token).key.id == key_id


@pytest.mark.postgres
def test_host_that_is_a_day_behind_admits_nobody(
    postgresql_database: Database, set_clock: Callable[[timedelta], None]
) -> None:
    database = postgresql_database
    key_id, plain = expiring_key(database, MINUTE)
    session = browser_sessions.open_session(database, keys.get(database, key_id))
    upload = upload_sessions.create(database, key_id, 10, -MINUTE)
    with database.transaction() as writing:
        writing.execute(update(ApiKeyRow).values(expires_at=read_clock(database) - MINUTE))
    set_clock(-DAY)
    assert not keys.usable(database, key_id)
    with pytest.raises(Unauthorized), database.connection() as connection:
        keys.verify(connection, plain)
    with pytest.raises(Unauthorized):
        browser_sessions.resume(database, session.token)
    with pytest.raises(NotFound):
        upload_sessions.get(database, upload.id)
    with pytest.raises(InvalidInput, match="past"):
        keys.create(database, KeyRequest("late", expires_at=read_clock(database) - timedelta(hours=1)))


@pytest.mark.postgres
@pytest.mark.parametrize("by", [-3 * DAY, 3 * DAY])
def test_rows_are_dated_by_the_database(
    postgresql_database: Database, set_clock: Callable[[timedelta], None], by: timedelta
) -> None:
    database = postgresql_database
    set_clock(by)
    before = datetime.now(UTC) - timedelta(seconds=2)
    key, _ = keys.create(database, "anybody")
    hook, _ = webhooks.create(database, key.tenant_id, "https://example.org", ["job.succeeded"])
    sent = webhooks.send_test(database, hook.id)
    [claimed] = webhooks.claim_due(database)
    for at in (key.created_at, hook.created_at, sent.created_at, claimed.at, keys.revoke(database, key.id).revoked_at):
        assert at is not None
        assert before <= at <= datetime.now(UTC) + timedelta(seconds=2)


def test_rows_have_an_instant_on_either_database(database: Database) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    assert before <= keys.create(database, "anybody")[0].created_at <= datetime.now(UTC) + timedelta(seconds=2)


@pytest.mark.postgres
@pytest.mark.parametrize(("seconds", "said"), [(7.5, "ahead of"), (-7.5, "behind")])
def test_clock_that_differs_is_told(
    postgresql_database: Database, set_clock: Callable[[timedelta], None], seconds: float, said: str
) -> None:
    check_clock(postgresql_database)
    set_clock(timedelta(seconds=seconds))
    with pytest.raises(StoreUnavailable, match=rf"an API host is [78] s {said} the database's"):
        check_clock(postgresql_database)


def test_sqlite_has_no_other_clock(tmp_path: Path, set_clock: Callable[[timedelta], None]) -> None:
    database = Database(f"sqlite:///{tmp_path / 'datalens.db'}")
    database.migrate()
    set_clock(3 * DAY)
    check_clock(database)
    assert keys.create(database, "anybody")[0].created_at > datetime.now(UTC) + 2 * DAY


@pytest.mark.parametrize(
    "line",
    [
        "from datalens_service.base.clock import utc_now",
        "import datetime as moments; moments.datetime.now(moments.UTC)",
        "from datetime import date; date.today()",
        "from time import time as seconds; seconds()",
        "import time; time.time_ns()",
        "from sqlalchemy import func; func.now()",
    ],
)
@pytest.mark.parametrize("module", ["datalens_service/store/new.py", "api/security/new.py", "workers/new.py"])
def test_no_module_may_ask_the_machine_for_the_time(line: str, module: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", module, "-"],
        input=f"{line}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TID251" in checked.stdout, checked
