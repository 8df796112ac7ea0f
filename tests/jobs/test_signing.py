"""What a job leaves is signed with the key that the service publishes, whichever process did it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from api.main import create_app
from datalens_service.jobs.execute import execute
from datalens_service.signatures import signer
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.installation import signing_key
from deployments.deployment import QUICK, Deployment

SIGNED = ("privacy.json", "account-proof.json", "report.json", "report-releasable.json")


@pytest.fixture
def anybody(local: Deployment) -> Iterator[TestClient]:
    """Without a key."""
    with TestClient(create_app(local.settings), base_url="http://service") as http:
        yield http


def test_every_proof_and_report_of_a_job_is_signed_with_the_published_key(
    local: Deployment, anybody: TestClient
) -> None:
    store = ArtifactStore(local.database, local.folder)
    job = local.submit(QUICK)
    execute(local.database, store, local.settings, local.claim(job))
    published = anybody.get("/v1/signing-key").json()
    assert published["algorithm"] == "Ed25519"
    for name in SIGNED:
        key = signer(store.get(job.id, name).path.read_bytes())
        assert key is not None, name
        assert (key.hex, key.key_id, key.pem) == (published["public_key"], published["key_id"], published["pem"])
    for name in ("report.html", "report-releasable.html"):
        page = store.get(job.id, name).path.read_text()
        assert published["key_id"] in page
        assert "/v1/signing-key" in page


def test_the_key_is_on_a_page_that_anybody_may_open(anybody: TestClient) -> None:
    key, reply = anybody.get("/v1/signing-key").json(), anybody.get("/signing-key")
    assert reply.status_code == 200
    for name in ("key_id", "public_key"):
        assert key[name] in reply.text
    assert all(line in reply.text for line in key["pem"].splitlines())
    assert "script-src 'self'" in reply.headers["content-security-policy"]


def test_another_process_has_the_same_key(local: Deployment) -> None:
    program = (
        "from datalens_service.store.database import Database\n"
        "from datalens_service.store.installation import signing_key\n"
        f"print(signing_key(Database({local.database.url!r})).public.hex)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert printed.stdout.strip() == signing_key(local.database).public.hex


def test_the_secret_of_the_key_is_not_published(local: Deployment, anybody: TestClient) -> None:
    shown = anybody.get("/v1/signing-key").json()
    assert set(shown) == {"algorithm", "key_id", "public_key", "pem"}
    assert "PRIVATE" not in shown["pem"]
