"""Signing in with a key: what the browser gets instead of it, and what that is good for."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from api_builders import training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.security.browser_sessions import COOKIE, FORM_TOKEN_HEADER
from datalens_service.base.clock import utc_now
from datalens_service.base.errors import Unauthorized
from datalens_service.base.settings import Settings
from datalens_service.store import database as store
from datalens_service.store import installation
from datalens_service.store.access import browser_sessions, keys
from datalens_service.store.access.browser_sessions import BrowserSession
from datalens_service.store.database import Database
from datalens_service.store.installation import Purpose, create_signer
from datalens_service.store.schema.service_tables import BrowserSessionRow


@pytest.fixture
def browser(client: TestClient, dataset_id: str) -> TestClient:
    """A client without a key of its own, that does not follow redirects, on a service with a data set."""
    assert dataset_id
    del client.headers["Authorization"]
    client.follow_redirects = False
    return client


@pytest.fixture
def key(services: Services) -> tuple[str, str]:
    """Id and plain text."""
    made, plain = keys.create(services.database, "visitor")
    return made.id, plain


@pytest.fixture
def session(services: Services, key: tuple[str, str]) -> BrowserSession:
    return browser_sessions.sign_in(services.database, key[1])


def resumes(services: Services, token: str) -> bool:
    """Whether a cookie with this token is a session."""
    try:
        return browser_sessions.resume(services.database, token).key.name == "visitor"
    except Unauthorized as error:
        return "sign in again" not in error.detail


def sign_in(browser: TestClient, plain: str, **more: Any) -> Any:
    return browser.post("/sign-in", data={"key": plain, **more})


def test_a_key_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(
    browser: TestClient, key: tuple[str, str]
) -> None:
    answer = sign_in(browser, f" {key[1]}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; ")[1:])
    assert key[1] not in cookie
    assert key[1][4:12] not in cookie
    page = browser.get("/")
    assert page.status_code == 200
    assert key[1] not in page.text
    assert page.headers["cache-control"] == "no-store"


def test_the_cookie_is_for_https_alone_where_there_is_https(
    browser: TestClient, services: Services, key: tuple[str, str]
) -> None:
    browser.base_url = browser.base_url.copy_with(scheme="https")
    signed_in = sign_in(browser, key[1])
    assert signed_in.headers["strict-transport-security"] == "max-age=31536000"
    name, _, parts = signed_in.headers["set-cookie"].partition("=")
    # Browsers take a cookie of this name from nobody but this host.
    assert name == f"__Host-{COOKIE}"
    assert {"Secure", "Path=/"} <= set(parts.split("; "))
    token = parts.partition(";")[0]
    assert browser.get("/").status_code == 200
    browser.post("/sign-out")
    assert not browser.cookies
    planted = browser_sessions.sign_in(services.database, key[1]).token
    assert browser.get("/", headers={"Cookie": f"{COOKIE}={planted}"}).status_code == 303
    assert browser.get("/", headers={"Cookie": f"__Host-{COOKIE}={planted}"}).status_code == 200
    assert browser.get("/", headers={"Cookie": f"__Host-{COOKIE}={token}"}).status_code == 303


def test_without_https_no_answer_demands_it(browser: TestClient) -> None:
    assert "strict-transport-security" not in browser.get("/sign-in").headers


def test_a_wrong_key_is_told_and_not_repeated(browser: TestClient) -> None:
    for plain in ["", "dlk_nonsense", "dlk_" + "a" * 36 + "_00000000"]:
        answer = sign_in(browser, plain)
        assert answer.status_code == 401, plain
        assert 'role="alert"' in answer.text
        assert "set-cookie" not in answer.headers
        assert not plain or plain not in answer.text


def test_another_site_cannot_sign_somebody_in_or_out(browser: TestClient, key: tuple[str, str]) -> None:
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    refused = browser.post("/sign-in", data={"key": key[1]}, headers=elsewhere)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    sign_in(browser, key[1])
    for form in ({}, {"everywhere": "true"}):
        assert "set-cookie" not in browser.post("/sign-out", data=form, headers=elsewhere).headers
    assert browser.get("/").status_code == 200


def test_a_visitor_without_a_session_is_led_to_the_form(browser: TestClient) -> None:
    for path in ["/", "/datasets/new", "/datasets/ds_1", "/jobs", "/jobs/job_1", "/jobs/job_1/report"]:
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sign-in?next={path}"), path


def test_signing_in_leads_to_a_page_of_this_service(browser: TestClient, key: tuple[str, str]) -> None:
    for wanted, place in [
        ("/jobs", "/jobs"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("", "/"),
    ]:
        assert sign_in(browser, key[1], next=wanted).headers["location"] == place, wanted


def test_a_session_reads_the_api_and_changes_something_only_with_its_form_token(
    browser: TestClient, key: tuple[str, str], dataset_id: str
) -> None:
    sign_in(browser, key[1])
    assert browser.get(f"/v1/datasets/{dataset_id}").status_code == 200
    found = re.search(r'<meta name="form-token" content="([\w-]{43})">', browser.get("/").text)
    assert found is not None
    answer = browser.post("/v1/jobs", json=training(dataset_id), headers={FORM_TOKEN_HEADER: found[1]})
    assert answer.status_code == 202


def replayed(browser: TestClient, token: str) -> tuple[int, int, int]:
    """What a page, a request that reads and one that changes answer to a cookie that was kept."""
    cookie = {"Cookie": f"{COOKIE}={token}"}
    changing = browser.post("/v1/webhooks", json={}, headers={**cookie, FORM_TOKEN_HEADER: "0" * 64})
    read = browser.get("/v1/jobs", headers=cookie)
    return browser.get("/", headers=cookie).status_code, read.status_code, changing.status_code


def test_a_cookie_that_was_kept_is_worth_nothing_after_signing_out_in_every_process(
    browser: TestClient, settings: Settings, session: BrowserSession, key: tuple[str, str]
) -> None:
    sign_in(browser, key[1])
    token = browser.cookies[COOKIE]
    with TestClient(create_app(settings), base_url="http://service", follow_redirects=False) as other:
        assert replayed(other, token)[:2] == (200, 200)
        assert browser.post("/sign-out").headers["location"] == "/sign-in"
        assert COOKIE not in browser.cookies
        assert replayed(other, token) == replayed(browser, token) == (303, 401, 401)
        assert replayed(other, session.token)[:2] == (200, 200), "another session"


def test_signing_out_everywhere_ends_all_sessions_of_the_key(
    browser: TestClient, services: Services, session: BrowserSession, key: tuple[str, str]
) -> None:
    strangers = browser_sessions.sign_in(services.database, keys.create(services.database, "stranger")[1]).token
    sign_in(browser, key[1])
    token = browser.cookies[COOKIE]
    browser.post("/sign-out", data={"everywhere": "true"})
    assert replayed(browser, token)[0] == replayed(browser, session.token)[0] == 303
    assert replayed(browser, strangers)[0] == 200
    assert sign_in(browser, key[1]).status_code == 303


def test_signing_out_without_a_session_changes_nothing(
    browser: TestClient, services: Services, session: BrowserSession
) -> None:
    for cookie in ("", "nonsense", session.token[:-1]):
        headers = {"Cookie": f"{COOKIE}={cookie}"}
        assert browser.post("/sign-out", headers=headers, data={"everywhere": "true"}).status_code == 303
    assert resumes(services, session.token)


def test_the_database_does_not_hold_what_a_cookie_holds(session: BrowserSession, settings: Settings) -> None:
    content = b"".join(path.read_bytes() for path in settings.data_dir.glob("datalens.db*"))
    assert session.token.encode() not in content
    assert session.form_token.encode() not in content


def test_sessions_that_have_ended_do_not_pile_up(
    services: Services, key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        browser_sessions.sign_in(services.database, key[1])
    later(monkeypatch, browser_sessions.LIFETIME_SECONDS)
    token = browser_sessions.sign_in(services.database, key[1]).token
    browser_sessions.remove_expired(services.database)
    assert count(services) == 1
    browser_sessions.sign_out(services.database, token)
    assert count(services) == 0


def count(services: Services) -> int:
    with services.database.session() as session:
        return session.query(BrowserSessionRow).count()


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = utc_now() + timedelta(seconds=seconds)
    monkeypatch.setattr(browser_sessions, "read_database_clock", lambda _: now)


@pytest.mark.parametrize("expires", [False, True])
def test_a_session_ends_with_its_key(
    browser: TestClient, services: Services, key: tuple[str, str], expires: bool
) -> None:
    sign_in(browser, key[1])
    if expires:
        keys.rotate(services.database, key[0], timedelta(seconds=0))
    else:
        keys.revoke(services.database, key[0])
    assert (browser.get("/").status_code, browser.get("/v1/jobs").status_code) == (303, 401)
    assert expires or count(services) == 0


@pytest.mark.parametrize(
    ("used", "ended"),
    [(range(0, 12 * 60, 50), 12 * 60 + 0.2), ((), 60.2), ((-10,), 70.0)],
    ids=["used", "unused", "back"],
)
def test_a_session_ends_after_twelve_hours_and_after_one_without_use(
    services: Services, session: BrowserSession, monkeypatch: pytest.MonkeyPatch, used: Iterable[float], ended: float
) -> None:
    """At minutes after its beginning; a clock that is set back neither ends it nor makes it longer."""
    for minutes in used:
        later(monkeypatch, 60 * minutes)
        assert resumes(services, session.token)
    later(monkeypatch, 60 * ended)
    assert not resumes(services, session.token)


def test_a_session_goes_on_while_the_database_takes_no_writes(
    services: Services, session: BrowserSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.1)
    later(monkeypatch, browser_sessions.UNUSED_SECONDS - 60)
    with Database(services.database.url).transaction():
        assert resumes(services, session.token)


def test_a_cookie_of_an_earlier_version_is_no_session(services: Services) -> None:
    with services.database.session() as connection:
        token = create_signer(connection, Purpose.BROWSER_SESSION).sign("B-3" * 14).decode()
    assert not resumes(services, token)


def test_an_altered_token_is_no_session(services: Services, session: BrowserSession) -> None:
    token = session.token
    identity, signature = token.split(".")
    forged = [identity, f"{identity}.", f".{signature}", f"{identity[::-1]}.{signature}", f"{identity}.{identity}"]
    altered = [token[:-2], token + "A", token.swapcase(), token[::-1], "", "é", "\0", "0" * 64, *forged]
    assert not any(resumes(services, one) for one in altered)
    assert resumes(services, token)


def test_what_is_signed_for_one_purpose_is_refused_for_another(services: Services, session: BrowserSession) -> None:
    identity = session.token.split(".")[0]
    assert not resumes(services, f"{identity}.{session.form_token}")
    with services.database.session() as connection:
        signatures = {create_signer(connection, purpose).get_signature(identity) for purpose in Purpose}
    assert len(signatures) == len(Purpose)


def test_a_cookie_of_another_installation_is_no_session(
    services: Services, session: BrowserSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "installation_key", lambda *_, **__: bytes(32))
    assert not resumes(services, session.token)
    browser_sessions.sign_out(services.database, session.token)
    assert count(services) == 1
