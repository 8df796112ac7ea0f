"""Single sign-on against a running OpenID provider, and every attack that a check of ours stops."""

import base64
import hmac
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from oidc_provider_mock import User, app
from pydantic import SecretStr
from starlette.testclient import TestClient
from werkzeug.serving import make_server

from datalens_service.adapters import openid_provider
from datalens_service.adapters.openid_provider import OpenIdProvider, ProviderUnavailableError, Secrets, check_id_token
from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.security import sign_in_attempts
from datalens_service.api.security.browser_sessions import COOKIE
from datalens_service.base.clock import utc_now
from datalens_service.base.errors import Forbidden, InvalidInput, StateConflict, Unauthorized
from datalens_service.base.settings import Settings
from datalens_service.services.claims import identify, parse_grants
from datalens_service.store.access import identities, keys, tenants, usage
from datalens_service.store.access.roles import SCOPES, Role, Scope
from datalens_service.store.schema.tables import DEFAULT_TENANT

CLIENT = "datalens"
NONCE = "n" * 43
ISSUER = "https://login.example.org"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
PEOPLE = (
    User(sub="maria", claims={"name": "Maria", "groups": ["stewards", "everybody"], "house": "north"}),
    User(sub="omar", claims={"groups": "lab"}),
    User(sub="guest", claims={"groups": ["everybody"]}),
)
GRANTS = {"stewards": "owner", "lab": "jobs:read releases:read"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    # Not `run_server_in_thread`, which fails if its server needs more than a second to stop.
    server = make_server("localhost", 0, app(user_claims=PEOPLE), threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider runs in this process and may be slow to answer; how long the product waits is not tested here."""
    monkeypatch.setattr(openid_provider, "_TIMEOUT_SECONDS", 120.0)


@pytest.fixture
def settings(settings: Settings, issuer: str) -> Settings:
    return settings.model_copy(
        update={
            "public_url": "http://service",
            "oidc_issuer": issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret": SecretStr("hush"),
            "oidc_scopes": GRANTS,
        }
    )


@pytest.fixture
def browser(client: TestClient) -> TestClient:
    del client.headers["Authorization"]
    client.follow_redirects = False
    return client


def answer_of_the_provider(browser: TestClient, person: str, next: str = "/jobs") -> str:
    """Path and query to which the provider sends somebody who begins to sign in."""
    leaving = browser.get("/sign-in/oidc", params={"next": next})
    assert leaving.status_code == 303
    back = httpx2.post(leaving.headers["location"], data={"sub": person}, timeout=120)
    address = urlsplit(back.headers["location"])
    assert (address.scheme, address.netloc) == ("http", "service")
    return f"{address.path}?{address.query}"


def test_a_person_signs_in_elsewhere_and_gets_the_rights_that_the_claims_grant(
    browser: TestClient, services: Services
) -> None:
    assert 'href="/sign-in/oidc?next=/jobs"' in browser.get("/sign-in", params={"next": "/jobs"}).text
    answer = browser.get(answer_of_the_provider(browser, "maria"))
    assert answer.status_code == 200
    assert 'content="0; url=/jobs"' in answer.text
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers.get_list("set-cookie")[0].split("; "))
    assert browser.get("/jobs").status_code == 200
    (person,) = [key for key in keys.list_keys(services.database) if key.single_sign_on]
    assert (person.name, person.role, person.scopes) == ("Maria", Role.OWNER, SCOPES[Role.OWNER])


def test_under_a_root_path_a_person_goes_there_and_back(settings: Settings) -> None:
    below = settings.model_copy(update={"root_path": "/datalens"})
    with TestClient(create_app(below), base_url="http://service", follow_redirects=False) as browser:
        back = answer_of_the_provider(browser, "maria")
        assert back.startswith("/datalens/sign-in/oidc/callback?")
        assert {cookie.path for cookie in browser.cookies.jar} == {"/datalens/sign-in/oidc"}
        answer = browser.get(back)
        assert 'content="0; url=/datalens/jobs"' in answer.text
        assert {cookie.path for cookie in browser.cookies.jar} == {"/datalens"}
        assert browser.get("/datalens/jobs").status_code == 200


def test_the_request_has_state_nonce_and_a_hashed_verifier(browser: TestClient) -> None:
    leaving = browser.get("/sign-in/oidc")
    query = parse_qs(urlsplit(leaving.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert len({query[name][0] for name in ("state", "nonce", "code_challenge")}) == 3
    assert {"HttpOnly", "SameSite=lax", "Path=/sign-in/oidc"} <= set(leaving.headers["set-cookie"].split("; "))
    assert query["redirect_uri"] == ["http://service/sign-in/oidc/callback"]


def test_named_scopes_reach_as_far_as_they_say(browser: TestClient) -> None:
    browser.get(answer_of_the_provider(browser, "omar"))
    assert browser.get("/v1/jobs").status_code == 200
    assert browser.get("/v1/datasets").status_code == 403
    assert browser.get("/v1/audit").status_code == 403


def test_a_person_without_rights_is_refused_and_leaves_no_row(browser: TestClient, services: Services) -> None:
    answer = browser.get(answer_of_the_provider(browser, "guest"))
    assert answer.status_code == 403
    assert "no rights here" in answer.text
    assert COOKIE not in browser.cookies
    assert not any(key.single_sign_on for key in keys.list_keys(services.database))


def test_a_code_is_worth_nothing_the_second_time(browser: TestClient) -> None:
    back = answer_of_the_provider(browser, "maria")
    attempt = browser.cookies[sign_in_attempts.COOKIE]
    assert browser.get(back).status_code == 200
    browser.cookies.clear()
    replayed = browser.get(back, headers={"Cookie": f"{sign_in_attempts.COOKIE}={attempt}"})
    assert replayed.status_code == 401
    assert COOKIE not in browser.cookies


def test_an_answer_to_somebody_elses_request_is_refused(browser: TestClient) -> None:
    for state in ("", "other", "s" * 43):
        back = answer_of_the_provider(browser, "maria")
        code = parse_qs(urlsplit(back).query)["code"][0]
        answer = browser.get("/sign-in/oidc/callback", params={"code": code, "state": state})
        assert answer.status_code == 401
        assert COOKIE not in browser.cookies


def test_an_answer_of_another_issuer_to_another_browser_or_too_late_is_refused(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = answer_of_the_provider(browser, "maria")
    assert browser.get(f"{back}&iss=https://evil.example").status_code == 401
    back = answer_of_the_provider(browser, "maria")
    browser.cookies.clear()
    assert browser.get(back).status_code == 401
    back = answer_of_the_provider(browser, "maria")
    later = utc_now() + timedelta(seconds=sign_in_attempts.LIFETIME_SECONDS + 1)
    monkeypatch.setattr(sign_in_attempts, "read_database_clock", lambda _: later)
    assert browser.get(back).status_code == 401


def test_signing_in_leads_to_a_page_of_this_service(browser: TestClient) -> None:
    for next in ("//evil.example", '/"><script>'):
        page = browser.get(answer_of_the_provider(browser, "maria", next))
        assert page.status_code == 200
        assert "evil.example" not in page.text
        assert "<script>" not in page.text


def test_revoked_access_ends_sessions_and_does_not_come_back(browser: TestClient, services: Services) -> None:
    browser.get(answer_of_the_provider(browser, "maria"))
    (person,) = [key for key in keys.list_keys(services.database) if key.single_sign_on]
    keys.revoke(services.database, person.id)
    assert browser.get("/jobs").status_code == 303
    refused = browser.get(answer_of_the_provider(browser, "maria"))
    assert (refused.status_code, "revoked" in refused.text) == (403, True)


def test_no_key_comes_into_being(services: Services, settings: Settings) -> None:
    before = usage.count_usage(services.database, DEFAULT_TENANT).api_keys
    claims = {"sub": "maria", "groups": ["stewards"]}
    session = identities.sign_in(services.database, identify(services.database, settings, claims))
    assert usage.count_usage(services.database, DEFAULT_TENANT).api_keys == before
    assert session.key.expires_at is not None
    with pytest.raises(StateConflict, match="single sign-on"):
        keys.rotate(services.database, session.key.id, utc_now() - utc_now())
    for key in keys.list_keys(services.database):
        if not key.single_sign_on:
            keys.revoke(services.database, key.id)
    assert keys.create_first(services.database, "first", print) is not None


def test_rights_are_those_of_the_last_sign_in(services: Services, settings: Settings) -> None:
    first = {"sub": "maria", "groups": ["stewards"]}
    session = identities.sign_in(services.database, identify(services.database, settings, first))
    again = identities.sign_in(services.database, identify(services.database, settings, {**first, "groups": ["lab"]}))
    assert again.key.id == session.key.id
    assert keys.get(services.database, session.key.id).scopes == {Scope.JOBS_READ, Scope.RELEASES_READ}


def test_a_claim_names_the_tenant_and_an_unknown_one_is_refused(services: Services, settings: Settings) -> None:
    north = tenants.create(services.database, "north")
    settings = settings.model_copy(update={"oidc_tenant_claim": "house"})
    claims = {"sub": "maria", "groups": ["stewards"]}
    assert identify(services.database, settings, {**claims, "house": "north"}).tenant_id == north.id
    for house in ({}, {"house": "south"}, {"house": ["north"]}, {"house": ""}):
        with pytest.raises(Forbidden):
            identify(services.database, settings, {**claims, **house})


def test_claims_that_the_setting_does_not_name_grant_nothing(services: Services, settings: Settings) -> None:
    for claim in (None, 1, {"stewards": True}, [["stewards"]], ["Stewards"], "stewards2"):
        with pytest.raises(Forbidden):
            identify(services.database, settings, {"sub": "maria", "groups": claim})


def test_a_person_is_called_by_the_first_name_that_can_be_shown(services: Services, settings: Settings) -> None:
    for names, shown in (({"name": "\x00 ", "email": "m@x"}, "m@x"), ({"sub": " "}, "somebody without a name")):
        claims = {"sub": "maria", "groups": ["stewards"], **names}
        assert identify(services.database, settings, claims).name == shown


@pytest.mark.parametrize("granted", ["admin", "jobs:read everything", " ", "OWNER"])
def test_grants_are_a_role_or_scopes(granted: str) -> None:
    with pytest.raises(InvalidInput, match="neither a role nor scopes"):
        parse_grants({"x": granted})


def token(key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> dict[str, str]:
    """Answer of a provider with an ID token; claims of None are left out."""
    now = int(time.time())
    usual = {"iss": ISSUER, "aud": CLIENT, "sub": "maria", "nonce": NONCE, "iat": now, "exp": now + 300}
    body = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return {"id_token": jwt.encode({"alg": algorithm, "kid": "one"}, body, key, algorithms=[algorithm])}


def check(tokens: dict[str, str]) -> Any:
    keys_of_the_issuer = KeySet.import_key_set({"keys": [KEY.as_dict(private=False)]})
    return check_id_token(tokens, keys_of_the_issuer, ISSUER, CLIENT, NONCE, utc_now())


def test_a_sound_token_stands_its_check() -> None:
    assert check(token())["sub"] == "maria"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "m" * 43},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": "another-client", "azp": CLIENT},
        {"aud": [CLIENT, "another-client"]},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"aud": None},
        {"exp": None},
        {"iat": None},
        {"iss": "https://login.example.org.evil.example"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"at_hash": 1},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        check({**token(**claims), "access_token": "a"})


@pytest.mark.parametrize(("claim", "seconds"), [("exp", -61), ("iat", 3600), ("nbf", 3600)])
def test_a_token_of_another_time_is_refused(claim: str, seconds: int) -> None:
    with pytest.raises(Unauthorized):
        check(token(**{claim: int(time.time()) + seconds}))


def test_a_token_without_a_signature_is_refused() -> None:
    header, body, signature = token()["id_token"].split(".")
    unsigned = "eyJhbGciOiJub25lIn0"
    for forged in (f"{unsigned}.{body}.", f"{unsigned}.{body}.{signature}", f"{header}.{body}.", "", "a.b.c"):
        with pytest.raises(Unauthorized):
            check({"id_token": forged})
    with pytest.raises(Unauthorized):
        check({})


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(Unauthorized):
        check(token(RSAKey.generate_key(2048, {"kid": "one"})))


def test_the_public_key_is_no_secret_to_sign_with() -> None:
    body = ".".join((encoded(b'{"alg":"HS256","kid":"one"}'), token()["id_token"].split(".")[1]))
    for secret in (KEY.as_pem(private=False), CLIENT.encode()):
        signature = encoded(hmac.digest(secret, body.encode(), "sha256"))
        with pytest.raises(Unauthorized):
            check({"id_token": f"{body}.{signature}"})


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_metadata_of_another_issuer_is_refused(settings: Settings, issuer: str) -> None:
    attempt = Secrets("state", "nonce", "verifier")
    for other in (f"{issuer}/", f"{issuer}/elsewhere", "http://localhost:9"):
        with pytest.raises(ProviderUnavailableError):
            OpenIdProvider(settings.model_copy(update={"oidc_issuer": other})).authorization_url(attempt)


@pytest.mark.parametrize("document", [[], "no", 1, None])
def test_a_provider_that_answers_nonsense_is_unavailable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    answer = httpx2.Response(200, json=document, request=httpx2.Request("GET", ISSUER))
    monkeypatch.setattr(httpx2, "get", lambda *_, **__: answer)
    with pytest.raises(ProviderUnavailableError):
        OpenIdProvider(settings).authorization_url(Secrets("state", "nonce", "verifier"))


def test_a_provider_that_does_not_answer_is_told_on_the_form_and_keys_go_on(settings: Settings) -> None:
    silent = settings.model_copy(update={"oidc_issuer": "http://localhost:9"})
    with TestClient(create_app(silent), base_url="http://service") as browser:
        answer = browser.get("/sign-in/oidc")
        assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        _, plain = keys.create(browser.app.state.services.database, "visitor")
        assert browser.post("/sign-in", data={"key": plain}, follow_redirects=False).status_code == 303


def test_without_the_setting_there_is_no_such_page(settings: Settings) -> None:
    plain = settings.model_copy(update={"oidc_issuer": ""})
    with TestClient(create_app(plain), base_url="http://service") as browser:
        assert browser.get("/sign-in/oidc", follow_redirects=False).status_code == 404
        assert "oidc" not in browser.get("/sign-in").text
