"""Under a path prefix, every address that the service gives away leads back to it."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from api_builders import claimed, one_of_everything, training
from starlette.routing import Route
from starlette.testclient import TestClient

from datalens_service.api import application
from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.store.access import keys
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState

ROOT = "/datalens"
FOLDER = Path(application.__file__).parent
PROXY, STRANGER = ("127.0.0.1", 50000), ("192.0.2.7", 50000)
SCRIPTED = "live|events|price|found|send|then|reveals"
ATTRIBUTE = re.compile(rf'\b(?:href|src|action|formaction|data-(?:{SCRIPTED}))="((?:{{{{.*?}}}}|[^"{{])*)"')
WRITTEN = re.compile(r"(?:(?:[A-Z]+|\{\{ method \}\}) )?\{\{ url\([^{}]*\{?[^{}]*\}?[^{}]*\) \}\}|#.*|reload")
SCRIPT_LITERAL = re.compile(r"""(?<!url\()["'`=]/[a-z]""")


class Addresses(HTMLParser):
    """What attributes of a page name on this host."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `next` of the sign-in form is a path within the service.
        values = (value or "" for name, value in attrs if name != "value")
        self.found += [found[1] for value in values if (found := re.match(r"(?:[A-Z]+ |0; url=)?(/.*)", value))]


def rooted_texts(value: Any) -> Iterator[str]:
    """Of a document in JSON."""
    if isinstance(value, str) and value.startswith("/"):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from rooted_texts(part)


def addresses(reply: Any) -> list[str]:
    """Everything in an answer that leads somewhere on this host."""
    kind = reply.headers.get("content-type", "")
    found = [value for name in ("location", "content-location") if (value := reply.headers.get(name, ""))]
    found += re.findall(r"path=([^;,]*)", reply.headers.get("set-cookie", ""), re.IGNORECASE)
    if kind.startswith("text/html"):
        found += Addresses(reply.text).found
    if "json" in kind:
        document = reply.json()
        # Its paths begin where its servers end; its examples are the same for everybody.
        found += rooted_texts(document["servers"] if "openapi" in document else document)
    return found


def leads_out(address: str) -> bool:
    return not f"{address}/".startswith((f"{ROOT}/", f"{ROOT}?", f"http://service{ROOT}/"))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"root_path": ROOT})


@pytest.fixture
def ids(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> dict[str, str]:
    """What stands in paths; beside it, a job that failed is in the lists."""
    failed = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    leases.finish(services.database, claimed(services, failed), JobState.FAILED, {"type": "out-of-memory"})
    ids = one_of_everything(client, services, dataset_id, tmp_path)
    signed = client.post(f"/v1/jobs/{ids['job_id']}/artifacts/generator.safetensors:sign").json()["url"]
    return {**ids, "slug": "not-found", "granted": signed.removeprefix(f"{ROOT}/v1/downloads/")}


@pytest.fixture
def browser(client: TestClient, services: Services) -> TestClient:
    """Signed in with a key of its own."""
    made = TestClient(client.app, base_url="http://service", follow_redirects=False)
    reply = made.post(f"{ROOT}/sign-in", data={"key": keys.create(services.database, "browser")[1]})
    assert reply.headers["location"] == f"{ROOT}/"
    return made


def paths(method: str) -> list[str]:
    modules = (*application._KEYED, *application._OTHERS)
    routes = [route for module in modules for route in module.router.routes if isinstance(route, Route)]
    return [route.path for route in routes if method in (route.methods or ())]


def test_no_answer_names_an_address_outside_of_the_root_path(browser: TestClient, ids: dict[str, str]) -> None:
    for accepted in ["text/html", "application/json"]:
        found: dict[str, list[str]] = {}
        for path in [*paths("GET"), "/openapi.json", "/nothing", "/jobs/"]:
            filled = path.format_map({**ids, "name": "generator.safetensors"})
            reply = browser.get(ROOT + filled, headers={"Accept": accepted})
            found[path] = addresses(reply)
        wrong = {path: out for path, named in found.items() if (out := [one for one in named if leads_out(one)])}
        assert wrong == {}, accepted
        assert sum(map(len, found.values())) > 100


def test_no_refusal_names_an_address_outside_of_the_root_path(client: TestClient, ids: dict[str, str]):
    absent = {**dict.fromkeys(ids, "x" * 32), "name": "absent"}
    for method in ["POST", "PUT", "PATCH", "DELETE"]:
        for path in paths(method):
            reply = client.request(method, ROOT + path.format_map(absent), follow_redirects=False)
            assert not [one for one in addresses(reply) if leads_out(one)], path


def test_what_was_made_is_where_the_answer_says(client: TestClient, dataset_id: str) -> None:
    tus = {"Upload-Length": "8", "Tus-Resumable": "1.0.0"}
    for path, arguments in {
        "/v1/jobs": {"json": training(dataset_id)},
        "/v1/uploads": {"headers": tus},
        "/v1/webhooks": {"json": {"url": "https://example.org/", "events": ["job.failed"]}},
    }.items():
        made = client.post(ROOT + path, **arguments)
        assert made.headers["location"].startswith(f"{ROOT}{path}/")
        assert client.get(made.headers["location"]).status_code == 200
        assert made.headers.get("tus-version") == ("1.0.0" if path == "/v1/uploads" else None)
        assert not [one for one in addresses(made) if leads_out(one)]


def test_a_signed_address_needs_no_key_below_the_root_path(client: TestClient, ids: dict[str, str]) -> None:
    signed = client.post(f"{ROOT}/v1/jobs/{ids['job_id']}/artifacts/generator.safetensors:sign").json()["url"]
    assert TestClient(client.app, base_url="http://service").get(signed).status_code == 200


def test_a_proxy_may_take_the_prefix_away_or_leave_it(browser: TestClient) -> None:
    for path in ["/sign-in", "/v1/jobs", "/static/main.js", "/docs", "/"]:
        cookie = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in browser.cookies.jar)}
        stripped, whole = (browser.get(place, headers=cookie) for place in (path, ROOT + path))
        assert (stripped.status_code, whole.status_code) == (200, 200), path
        assert stripped.text == whole.text


@pytest.mark.parametrize("root_path", ["", ROOT])
def test_an_upload_may_be_longer_than_other_bodies(settings: Settings, root_path: str) -> None:
    roomy = settings.model_copy(update={"max_upload_bytes": 2**22})
    with TestClient(create_app(roomy)) as http:
        replies = [http.post(root_path + path, content=bytes(2**20 + 1)) for path in ("/v1/datasets", "/v1/plans")]
    assert [reply.status_code == 413 for reply in replies] == [False, True]


def test_a_visitor_comes_back_to_the_page_that_was_asked_for(browser: TestClient) -> None:
    browser.cookies.clear()
    leads = browser.get(f"{ROOT}/jobs").headers["location"]
    assert leads == f"{ROOT}/sign-in?next=/jobs"
    assert 'name="next" value="/jobs"' in browser.get(leads).text


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_session_is_sent_below_the_root_path_alone_and_over_tls_if_that_is_how_it_came(
    settings: Settings, scheme: str
) -> None:
    with TestClient(create_app(settings), base_url="http://service", client=PROXY, follow_redirects=False) as browser:
        key = keys.create(browser.app.state.services.database, "x")[1]  # type: ignore[attr-defined]
        reply = browser.post(f"{ROOT}/sign-in", data={"key": key}, headers={"X-Forwarded-Proto": scheme})
    given = reply.headers["set-cookie"].split("; ")
    assert f"Path={ROOT}" in given
    assert ("Secure" in given) == (scheme == "https")


@pytest.mark.parametrize(
    ("client", "named", "used"),
    [
        (PROXY, "/lab/images", "/lab/images"),
        (STRANGER, "/lab/images", ""),
        (PROXY, "", ""),
        (PROXY, "/", ""),
        (PROXY, "lab", ""),
        (PROXY, "/lab/", ""),
        (PROXY, "//evil.example", ""),
        (PROXY, "https://evil.example", ""),
        (PROXY, "/lab/../..", ""),
        (PROXY, "/lab\\evil", ""),
        (PROXY, '/"><script>', ""),
        (PROXY, "/a, /b", ""),
        (PROXY, "/jobs", ""),
        (PROXY, "/v1/x", ""),
    ],
)
def test_a_trusted_proxy_names_the_root_path_and_nobody_else(
    settings: Settings, client: tuple[str, int], named: str, used: str
) -> None:
    told_nothing = settings.model_copy(update={"root_path": ""})
    with TestClient(create_app(told_nothing), base_url="http://service", client=client) as http:
        reply = http.get("/v1/jobs", headers={"X-Forwarded-Prefix": named})
        assert reply.json()["type"] == f"{used}/problems/unauthorized"
        assert http.get("/v1/jobs").json()["type"] == "/problems/unauthorized"


def test_the_description_names_the_server_and_is_the_same_otherwise(settings: Settings) -> None:
    """It is made once: whoever asks first must not decide for all others."""
    with TestClient(create_app(settings.model_copy(update={"root_path": ""})), client=PROXY) as http:
        below, plain = (http.get("/openapi.json", headers={"X-Forwarded-Prefix": one}) for one in ("/lab", ""))
    assert [one["url"] for one in below.json()["servers"]] == ["/lab"]
    assert [one["url"] for one in plain.json()["servers"]] == ["/"]
    assert "/lab/problems/" not in below.text + plain.text


@pytest.mark.parametrize("known", [{"root_path": ROOT}, {"public_url": "http://service", "root_path": ""}])
def test_a_service_that_knows_its_address_asks_no_proxy(settings: Settings, known: dict[str, str]) -> None:
    with TestClient(create_app(settings.model_copy(update=known)), client=PROXY) as http:
        reply = http.get("/v1/jobs", headers={"X-Forwarded-Prefix": "/other"})
    assert reply.json()["type"] == f"{known['root_path']}/problems/unauthorized"


def test_proxies_of_a_named_network_are_trusted(settings: Settings) -> None:
    wide = settings.model_copy(update={"root_path": "", "trusted_proxies": "127.0.0.1 192.0.2.0/24"})
    with TestClient(create_app(wide), client=STRANGER) as http:
        reply = http.get("/v1/jobs", headers={"X-Forwarded-Prefix": "/lab", "X-Forwarded-For": "203.0.113.9"})
    assert reply.json()["type"] == "/lab/problems/unauthorized"


@pytest.mark.parametrize("path", ["/jobs", "/v1/lab", "/static", "/openapi.json"])
def test_a_root_path_that_is_a_page_of_the_service_is_refused(settings: Settings, path: str) -> None:
    with pytest.raises(InvalidInput, match=f"pages at {path} itself"):
        create_app(settings.model_copy(update={"root_path": path}))


@pytest.mark.parametrize("template", sorted(FOLDER.glob("pages/templates/**/*.j2")), ids=lambda path: path.name)
def test_templates_write_every_address_by_url(template: Path) -> None:
    assert [value for value in ATTRIBUTE.findall(template.read_text()) if not WRITTEN.fullmatch(value)] == []


@pytest.mark.parametrize("script", sorted(FOLDER.glob("pages/static/*.js")), ids=lambda path: path.name)
def test_scripts_write_every_address_by_url(script: Path) -> None:
    assert SCRIPT_LITERAL.findall(script.read_text()) == []


def test_the_path_of_a_request_is_read_in_one_place() -> None:
    """Elsewhere, one would forget that the root path may stand before it."""
    reading = re.compile(r"""scope\[["']path|\burl\.path\b|\burl_for\(|\bbase_url\b""")
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py") if reading.search(path.read_text())}
    assert found == {"addresses.py", "http/reverse_proxy.py"}
