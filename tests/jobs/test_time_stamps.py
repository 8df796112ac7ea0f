"""Time stamps (RFC 3161) of the head of an account, by an authority of this test that OpenSSL plays."""

import subprocess
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.x509 import Certificate, load_pem_x509_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID

from certificates import SignerFiles, issue_signer
from datalens_service.adapters import time_stamps
from datalens_service.adapters.time_stamps import NoTimeStamp, ask_for_time_stamp
from datalens_service.base.errors import InvalidInput
from datalens_service.proof.release_verification import verify_path
from datalens_service.proof.time_stamp import TIME_STAMP
from datalens_service.store.jobs.jobs import JobState
from deployments.deployment import QUICK, Deployment
from other_programs import find_program

HEAD = "5f" * 32
CONFIGURATION = """
[tsa]
default_tsa = ours
[ours]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
"""


class Authority:
    """Answers on loopback; `answer` replaces what it would say, `queries` has what it was sent."""

    def __init__(self, folder: Path) -> None:
        self.files: SignerFiles = issue_signer(folder, use=ExtendedKeyUsageOID.TIME_STAMPING)
        self.queries: list[bytes] = []
        self.answer: bytes | None = None
        self.seconds = 0.0
        self._folder, self._openssl = folder, find_program("openssl")
        (folder / "serial").write_text("01\n")
        (folder / "ts.cnf").write_text(CONFIGURATION.format(folder=folder))
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                authority.queries.append(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(authority.seconds)
                content = authority.stamp() if authority.answer is None else authority.answer
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *values: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/tsa"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stamp(self) -> bytes:
        """What OpenSSL makes of the last query."""
        (self._folder / "query").write_bytes(self.queries[-1])
        signer = ("-signer", self.files.certificate, "-inkey", self.files.key, "-config", self._folder / "ts.cnf")
        command = [self._openssl, "ts", "-reply", "-queryfile", self._folder / "query", *signer]
        return subprocess.run(command, capture_output=True, check=True).stdout

    @property
    def certificates(self) -> list[Certificate]:
        return load_pem_x509_certificates(self.files.authority.read_bytes())


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    made = Authority(tmp_path / "authority")
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_head_of_a_job_is_stamped_and_verified_from_two_files(
    local: Deployment, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATALENS_TIMESTAMP_URL", authority.url)
    job = local.execute(local.submit(QUICK))
    head = local.read_json(job, "account-proof.json")["account"]["head"]["hash"]
    [query] = authority.queries
    assert sha256(bytes.fromhex(head)).digest() in query
    assert len(query) < 100, "more than a hash has left"
    assert "account-proof.tsr" not in {file.name for file in local.artifacts.list_artifacts(job.id) if file.releasable}
    for name in ("account-proof.json", "account-proof.tsr", "privacy.json"):
        (tmp_path / name).write_bytes(local.artifacts.get(job.id, name).path.read_bytes())
    proof = tmp_path / "account-proof.json"
    [line] = [one for one in verify_path(proof, None, authority.certificates).lines if one.check == TIME_STAMP]
    assert (line.status, "saw this head by 20" in line.finding) == ("holds", True)
    other = load_pem_x509_certificates(issue_signer(tmp_path / "other").authority.read_bytes())
    assert "does not vouch" in str(verify_path(proof, None, other).contradiction)
    ask_for_time_stamp(authority.url, HEAD)
    (tmp_path / "account-proof.tsr").write_bytes(authority.stamp())
    assert "Mismatch" in str(verify_path(proof, None, authority.certificates).contradiction)
    (tmp_path / "account-proof.tsr").unlink()
    assert "There is no account-proof.tsr" in str(verify_path(proof, None, authority.certificates).reason)
    assert verify_path(proof).holds
    with pytest.raises(InvalidInput, match="journal of an account"):
        verify_path(tmp_path / "privacy.json", None, authority.certificates)


def test_an_authority_that_fails_is_told_and_holds_nothing_up(
    local: Deployment, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.answer = b"not a time stamp"
    monkeypatch.setenv("DATALENS_TIMESTAMP_URL", authority.url)
    with structlog.testing.capture_logs() as lines:
        job = local.execute(local.submit(QUICK))
    assert (job.state, len(authority.queries)) == (JobState.SUCCEEDED, 1)
    assert "account-proof.tsr" not in {file.name for file in local.artifacts.list_artifacts(job.id)}
    [line] = [line for line in lines if line["event"] == "no time stamp of the account's head"]
    assert (line["log_level"], line["detail"]) == ("warning", "The authority's answer is no time stamp.")


def test_answers_that_are_no_stamp_of_this_head_are_refused(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_time_stamp(authority.url, HEAD)
    # The same head in an earlier query: its nonce is another.
    authority.answer = authority.stamp()
    with pytest.raises(NoTimeStamp, match="something else"):
        ask_for_time_stamp(authority.url, HEAD)
    authority.answer = b"0" * 2**18
    with pytest.raises(NoTimeStamp, match="too large"):
        ask_for_time_stamp(authority.url, HEAD)
    monkeypatch.setattr(time_stamps, "PATIENCE_SECONDS", 0.05)
    authority.seconds = 0.5
    with pytest.raises(NoTimeStamp, match="in time"):
        ask_for_time_stamp(authority.url, HEAD)
    with pytest.raises(NoTimeStamp, match="did not answer"):
        ask_for_time_stamp("http://127.0.0.1:1/", HEAD)
