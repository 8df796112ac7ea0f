"""Files one by one, parts of them, and addresses that need no key."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_builders import released
from itsdangerous import Signer
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.security import signed_urls
from datalens_service.base.clock import utc_now
from datalens_service.store.access import keys
from datalens_service.store.installation import Purpose, create_signer

NAME = "generator.safetensors"


@pytest.fixture
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    return released(client, tmp_path, dataset_id)


def signed(client: TestClient, job_id: str, name: str = NAME, **body: Any) -> Any:
    return client.post(f"/v1/jobs/{job_id}/artifacts/{name}:sign", json=body)


def without_key(client: TestClient, url: str, **arguments: Any) -> Any:
    return TestClient(client.app, base_url="http://service").get(url, **arguments)


def test_list_says_what_the_bytes_are(client: TestClient, job_id: str) -> None:
    items = client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]
    assert {"generator.safetensors", "synthetic.npz", "card.json", "report.json"} <= {item["name"] for item in items}
    for item in items:
        reply = client.get(item["url"])
        assert (len(reply.content), hashlib.sha256(reply.content).hexdigest()) == (item["size"], item["sha256"])
        assert reply.headers["ETag"] == f'"{item["sha256"]}"'
        digest = base64.b64encode(bytes.fromhex(item["sha256"])).decode()
        assert reply.headers["Repr-Digest"] == f"sha-256=:{digest}:"


def test_every_file_and_address_says_for_whom_it_is(client: TestClient, job_id: str) -> None:
    items = client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]
    owners = {item["name"] for item in items if item["audience"] == "owner"}
    assert owners == {"report.json", "report.html", "account-proof.json"}
    assert all((item["audience"] == "anyone") == item["releasable"] for item in items)
    address = signed(client, job_id).json()
    granted = urlsplit(address["url"]).path.rpartition("/")[2]
    claims = json.loads(base64.urlsafe_b64decode(granted + "=" * (-len(granted) % 4)))
    assert (address["audience"], claims["audience"]) == ("anyone", "anyone")


def test_a_signed_address_needs_no_key_and_is_noted(client: TestClient, job_id: str) -> None:
    reply = signed(client, job_id, expires_in=60)
    assert reply.status_code == 201
    address = reply.json()
    found = without_key(client, address["url"])
    assert found.status_code == 200
    assert found.content == client.get(f"/v1/jobs/{job_id}/artifacts/{NAME}").content
    assert found.headers["Content-Disposition"].startswith("attachment")
    assert without_key(client, address["url"], headers={"Range": "bytes=0-7"}).status_code == 206
    noted = [item["action"] for item in client.get("/v1/audit").json()["items"]]
    assert noted.count("getDownload") == 2


def test_what_is_for_the_owner_is_never_signed(client: TestClient, job_id: str) -> None:
    for name in ["report.json", "account-proof.json"]:
        reply = signed(client, job_id, name)
        assert (reply.status_code, reply.json()["code"]) == (403, "forbidden"), name


def test_whatever_is_changed_in_an_address_breaks_it(client: TestClient, job_id: str) -> None:
    for field in ["tenant_id", "key_id", "job_id", "name", "sha256", "audience", "method", "until"]:
        url = urlsplit(signed(client, job_id).json()["url"])
        granted = url.path.rpartition("/")[2]
        claims = json.loads(base64.urlsafe_b64decode(granted + "=" * (-len(granted) % 4)))
        claims[field] = claims[field] + 1 if field == "until" else claims[field] + "0"
        changed = base64.urlsafe_b64encode(json.dumps(claims, separators=(",", ":")).encode()).decode().rstrip("=")
        reply = without_key(client, f"/v1/downloads/{changed}?{url.query}")
        assert (reply.status_code, reply.json()["code"]) == (403, "forbidden"), field


def test_an_address_ends_in_time(client: TestClient, services: Services, job_id: str) -> None:
    artifact = services.artifacts.releasable(job_id, NAME)
    [key] = keys.list_keys(services.database)
    url = signed_urls.sign(services.database, key, artifact, utc_now())
    assert without_key(client, url).status_code == 403
    assert signed(client, job_id, expires_in=3601).status_code == 422


def test_an_address_ends_with_its_key(client: TestClient, job_id: str) -> None:
    other = client.post("/v1/api-keys", json={"name": "x", "role": "operator"}).json()
    headers = {"Authorization": f"Bearer {other['api_key']}"}
    url = client.post(f"/v1/jobs/{job_id}/artifacts/{NAME}:sign", headers=headers).json()["url"]
    assert without_key(client, url).status_code == 200
    client.delete(f"/v1/api-keys/{other['key']['id']}")
    assert without_key(client, url).status_code == 403


def test_a_forged_signature_is_refused(client: TestClient, services: Services, job_id: str) -> None:
    """Of nobody, of another installation, and of a form of this one."""
    url = urlsplit(signed(client, job_id).json()["url"])
    granted = url.path.rpartition("/")[2]
    signers = [
        Signer(secret, salt=Purpose.DOWNLOAD, key_derivation="hmac", digest_method=hashlib.sha256)
        for secret in (b"", b"\0" * 32)
    ]
    with services.database.session() as session:
        signers.append(create_signer(session, Purpose.FORM))
    forged = [signer.get_signature(granted).decode() for signer in signers]
    for signature in ["AAAA", "A", *forged]:
        reply = without_key(client, f"{url.path}?signature={signature}")
        assert (reply.status_code, reply.json()["code"]) == (403, "forbidden"), signature
    for signature in ["%20", ""]:
        assert without_key(client, f"{url.path}?signature={signature}").status_code == 422, signature
    assert without_key(client, f"{url.path}?{url.query}").status_code == 200
