"""Sends messages of webhooks whose address is `mailto:`: job, state and link, over a connection that is encrypted.

Only domains that the operator names get mail, so that nobody can write to strangers in the operator's name. Queue,
attempts and their record are those of webhooks; an attempt that is repeated has the same Message-ID.
"""

import json
import re
import smtplib
import ssl
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from datalens_service.base.errors import InvalidInput
from datalens_service.base.settings import Settings
from datalens_service.store.access.webhooks import TEST_EVENT, Claimed

SCHEME: Final = "mailto:"
_RECIPIENT: Final = re.compile(r"mailto:([A-Za-z0-9._%+-]{1,64}@((?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,63}))")
_TIMEOUT_SECONDS: Final = 10.0
_ACCEPTED: Final = 250


def check_recipient(url: str, settings: Settings) -> str:
    """The address of a person who may get mail.

    Raises:
        InvalidInput: Mail is not set up, it is no address, or its domain is not allowed.
    """
    if not settings.smtp_url.get_secret_value():
        raise InvalidInput("⟦webhook.url⟧ is a mail address, but this service sends no mail.")
    recipient = _RECIPIENT.fullmatch(url)
    if recipient is None:
        raise InvalidInput("⟦webhook.url⟧ must be mailto: and one address, nothing else.")
    if recipient[2].lower() not in settings.mail_domains.lower().split():
        raise InvalidInput("⟦webhook.url⟧ is a mail address of a domain that the operator does not allow.")
    return recipient[1]


def attempt_mail(message: Claimed, settings: Settings) -> tuple[int | None, str | None]:
    """Send one message once; the answer of the mail server, and what is wrong with it."""
    try:
        _send(_compose(message, check_recipient(message.url, settings), settings), settings)
    except InvalidInput as error:
        return None, error.text
    except smtplib.SMTPRecipientsRefused as error:
        ((code, _),) = error.recipients.values()
        return code, f"The mail server refused the address: {code}."
    except smtplib.SMTPResponseException as error:
        return error.smtp_code, f"The mail server answered {error.smtp_code}."
    except (OSError, smtplib.SMTPException) as error:
        # Messages of such errors name addresses; the class is enough.
        return None, f"No answer of the mail server: {type(error).__name__}."
    return _ACCEPTED, None


def _compose(message: Claimed, recipient: str, settings: Settings) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.mail_sender, recipient
    mail["Message-ID"] = f"<{message.delivery.id}@{urlsplit(settings.public_url).hostname}>"
    mail["Auto-Submitted"] = "auto-generated"
    subject, text = _words(
        message.delivery.event, json.loads(message.delivery.payload)["data"], settings.public_address
    )
    mail["Subject"] = subject
    mail.set_content(text)
    return mail


def _words(event: str, data: dict[str, Any], service: str) -> tuple[str, str]:
    """Write the subject and the text of a message."""
    if event == TEST_EVENT:
        return "DataLens: test", f"Mail from {service} arrives.\n"
    return (
        f"DataLens: job {data['state']}",
        f"Job {data['job_id']}: {data['state']}.\n\n{service}/jobs/{data['job_id']}\n",
    )


def _send(mail: EmailMessage, settings: Settings) -> None:
    server = urlsplit(settings.smtp_url.get_secret_value())
    with _connected(server) as connection:
        if server.username:
            connection.login(unquote(server.username), unquote(server.password or ""))
        connection.send_message(mail)


def _connected(server: SplitResult) -> smtplib.SMTP:
    """An encrypted connection: TLS from the start (smtps) or STARTTLS, without which nothing is sent (smtp)."""
    context, host = ssl.create_default_context(), server.hostname or ""
    if server.scheme == "smtps":
        return smtplib.SMTP_SSL(host, server.port or 465, timeout=_TIMEOUT_SECONDS, context=context)
    connection = smtplib.SMTP(host, server.port or 587, timeout=_TIMEOUT_SECONDS)
    try:
        connection.starttls(context=context)
    except Exception:
        connection.close()
        raise
    return connection
