"""Mail about jobs, received by an SMTP server that speaks TLS."""

import email
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from pydantic import SecretStr
from starlette.testclient import TestClient

from certificates import issue_certificate
from datalens_service.adapters import mail_sender
from datalens_service.adapters.mail_sender import attempt_mail, check_recipient
from datalens_service.adapters.webhook_sender import WebhookSender
from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.store.access import webhooks
from datalens_service.store.access.webhooks import Claimed
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import DEFAULT_TENANT
from ports import free_port

RECIPIENT = "mailto:maria@example.org"
JOB = "job_" + "0" * 32
PATIENCE = 120.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is a thread of this process and may be slow to answer."""
    monkeypatch.setattr(mail_sender, "_TIMEOUT_SECONDS", PATIENCE)


class Mailbox:
    """What a server received, and who signed in to it."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.users: list[bytes] = []
        self.refuse = False

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.refuse:
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        self.users.append(data.login)
        return AuthResult(success=data.password == b"hu:sh", handled=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, with its key."""
    path = tmp_path_factory.mktemp("tls") / "mail.pem"
    issue_certificate(path)
    return path


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def server(mailbox: Mailbox, certificate: Path) -> Iterator[Controller]:
    """A server that takes mail after STARTTLS and a password."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    running = Controller(
        mailbox,
        hostname="127.0.0.1",
        port=free_port(),
        ready_timeout=PATIENCE,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=mailbox.authenticate,
    )
    running.start()
    yield running
    running.stop()


def configured(controller: Controller, credentials: str = "svc:hu%3Ash@") -> Settings:
    port = controller.server.sockets[0].getsockname()[1]
    return Settings(
        public_url="https://datalens.example.org",
        smtp_url=SecretStr(f"smtp://{credentials}127.0.0.1:{port}"),
        mail_sender="datalens@example.org",
        mail_domains="example.org example.com",
    )


@pytest.fixture
def message(sqlite_database: Database) -> Claimed:
    """A test that is due."""
    hook, _ = webhooks.create(sqlite_database, DEFAULT_TENANT, RECIPIENT, ["job.succeeded"])
    webhooks.send_test(sqlite_database, hook.id)
    (message,) = webhooks.claim_due(sqlite_database)
    return message


@pytest.mark.parametrize("root_path", ["", "/datalens"])
@pytest.mark.usefixtures("trusted")
def test_a_mail_has_job_state_and_link_and_nothing_else(
    server: Controller, mailbox: Mailbox, message: Claimed, root_path: str
) -> None:
    payload = f'{{"type":"job.succeeded","data":{{"job_id":"{JOB}","dataset_id":"ds_secret","state":"succeeded"}}}}'
    ended = replace(message, delivery=replace(message.delivery, event="job.succeeded", payload=payload))
    assert attempt_mail(ended, configured(server).model_copy(update={"root_path": root_path})) == (250, None)
    (mail,) = mailbox.mails
    assert (mail["To"], mail["Subject"]) == ("maria@example.org", "DataLens: job succeeded")
    text = mail.get_payload(decode=True).decode().split()
    assert text == ["Job", f"{JOB}:", "succeeded.", f"https://datalens.example.org{root_path}/jobs/{JOB}"]
    assert "ds_secret" not in mail.as_string()
    assert mailbox.users == [b"svc"]
    attempt_mail(ended, configured(server))
    assert mailbox.mails[0]["Message-ID"] == mailbox.mails[1]["Message-ID"]


@pytest.mark.usefixtures("trusted")
def test_the_queue_sends_mail_and_notes_what_came_of_it(
    server: Controller, mailbox: Mailbox, message: Claimed, sqlite_database: Database
) -> None:
    WebhookSender(sqlite_database, configured(server), threading.Event())._deliver(message)
    (hook,) = webhooks.list_webhooks(sqlite_database, DEFAULT_TENANT)
    (delivery,) = webhooks.list_deliveries(sqlite_database, hook.id).items
    assert (delivery.state, delivery.status) == ("delivered", 250)
    assert mailbox.mails[0]["Subject"] == "DataLens: test"


@pytest.mark.usefixtures("trusted")
def test_refusals_are_noted_without_words_of_the_server(server: Controller, mailbox: Mailbox, message: Claimed) -> None:
    mailbox.refuse = True
    assert attempt_mail(message, configured(server)) == (550, "The mail server refused the address: 550.")
    status, error = attempt_mail(message, configured(server, "svc:wrong@"))
    assert (status, error) == (535, "The mail server answered 535.")


def test_a_certificate_that_nobody_vouches_for_gets_no_password(
    server: Controller, mailbox: Mailbox, message: Claimed
) -> None:
    status, error = attempt_mail(message, configured(server))
    assert (status, error) == (None, "No answer of the mail server: SSLCertVerificationError.")
    assert (mailbox.users, mailbox.mails) == ([], [])


def test_a_server_without_encryption_gets_nothing(mailbox: Mailbox, message: Claimed) -> None:
    plain = Controller(mailbox, hostname="127.0.0.1", port=free_port(), ready_timeout=PATIENCE)
    plain.start()
    try:
        status, error = attempt_mail(message, configured(plain, ""))
    finally:
        plain.stop()
    assert (status, error) == (None, "No answer of the mail server: SMTPNotSupportedError.")
    assert mailbox.mails == []


@pytest.mark.parametrize(
    "url",
    [
        "mailto:maria@evil.example",
        "mailto:maria@example.org.evil.example",
        "mailto:maria@example.org?bcc=x@evil.example",
        "mailto:maria@example.org,x@evil.example",
        "mailto:maria@example.org\nBcc: x@evil.example",
        "mailto:",
        "mailto:@example.org",
        "mailto:maria",
    ],
)
def test_only_one_person_of_an_allowed_domain_gets_mail(url: str) -> None:
    settings = Settings(
        public_url="https://d.example", smtp_url=SecretStr("smtp://m"), mail_sender="d@d", mail_domains="example.org"
    )
    assert check_recipient("mailto:Maria.B@Example.ORG", settings) == "Maria.B@Example.ORG"
    with pytest.raises(InvalidInput):
        check_recipient(url, settings)


def test_without_a_mail_server_the_api_refuses_mail_addresses(client: TestClient) -> None:
    answer = client.post("/v1/webhooks", json={"url": RECIPIENT})
    assert (answer.status_code, "sends no mail" in answer.json()["detail"]) == (422, True)
