"""Asks a time stamp authority (RFC 3161) to witness the head of an account's journal.

Nothing but a hash of the head leaves. Nobody waits longer than `PATIENCE_SECONDS`, whatever the authority does.
"""

import threading
from concurrent.futures import Future
from typing import Final

import httpx2

PATIENCE_SECONDS: Final = 15.0
_TIMEOUT_SECONDS: Final = 5.0
"""To connect, and between two bytes of an answer."""
_LARGEST_ANSWER: Final = 2**17
_HEADERS: Final = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


class NoTimeStamp(Exception):
    """The authority gave no time stamp."""


def ask_for_time_stamp(url: str, head: str) -> bytes:
    """Return the answer of an authority: a time stamp of the head, as DER.

    Args:
        head: Hash of the last entry, hexadecimal; the authority gets the SHA-256 of its 32 bytes.

    Raises:
        NoTimeStamp: It did not answer in time, refused, or stamped something else.
    """
    try:
        from rfc3161_client import HashAlgorithm, PKIStatus, TimestampRequestBuilder, decode_timestamp_response
    except ModuleNotFoundError:
        raise NoTimeStamp("Time stamps need datalens-service[timestamp].") from None
    query = TimestampRequestBuilder(bytes.fromhex(head), HashAlgorithm.SHA256).build()
    content = _post_within(url, query.as_bytes())
    try:
        answer = decode_timestamp_response(content)
        granted = answer.status == PKIStatus.GRANTED
        stamped = granted and (answer.tst_info.message_imprint.message, answer.tst_info.nonce)
    except ValueError:
        raise NoTimeStamp("The authority's answer is no time stamp.") from None
    if not granted:
        raise NoTimeStamp("The authority refused.")
    if stamped != (query.message_imprint.message, query.nonce):
        raise NoTimeStamp("The authority stamped something else.")
    return content


def _post_within(url: str, query: bytes) -> bytes:
    """Post a query, and give up after `PATIENCE_SECONDS`, however slowly something still comes."""
    answer: Future[bytes] = Future()

    def post() -> None:
        try:
            answer.set_result(_post(url, query))
        except Exception as error:  # noqa: BLE001 (whatever went wrong is told to whoever waits)
            answer.set_exception(error)

    threading.Thread(target=post, name="time stamp", daemon=True).start()
    try:
        return answer.result(PATIENCE_SECONDS)
    except TimeoutError:
        raise NoTimeStamp("The authority did not answer in time.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        raise NoTimeStamp("The authority did not answer.") from None


def _post(url: str, query: bytes) -> bytes:
    content = b""
    with httpx2.stream("POST", url, content=query, headers=_HEADERS, timeout=_TIMEOUT_SECONDS) as response:
        response.raise_for_status()
        for part in response.iter_bytes():
            content += part
            if len(content) > _LARGEST_ANSWER:
                raise NoTimeStamp("The authority's answer is too large.")
    return content
