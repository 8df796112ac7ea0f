"""Documents are signed by the installation that made them; a changed byte or another key is refused."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from datalens_service.base.errors import InvalidInput
from datalens_service.base.signatures import SignatureInvalid, SigningKey, public_key, signed_bytes, signer

KEY = SigningKey(b"k" * 32)
GOLDEN = "895dc682f6b377ff339f4be0b225f9c77a3f4f4a90789f2dfe62513d9d49c4b3"
DOCUMENT = {"format": "x/1", "ε": 1e-05, "list": [1, 2.5, None, True], "nested": {"b": "ü", "a": 2**70}}


def signed() -> bytes:
    return json.dumps(KEY.sign(DOCUMENT), ensure_ascii=False, indent=1).encode()


def test_the_key_is_a_function_of_the_secret_for_good() -> None:
    # A change of these digits is a change of every installation's key.
    assert SigningKey(bytes(range(32))).public.hex == GOLDEN
    assert SigningKey(b"a" * 32).public != SigningKey(b"b" * 32).public
    assert "kkkk" not in repr(KEY)


def test_a_document_says_who_signed_it_however_it_is_laid_out() -> None:
    assert signer(signed()) == KEY.public
    document = json.loads(signed())
    backwards = dict(reversed(document.items()))
    assert signer(json.dumps(backwards).encode()) == KEY.public
    assert KEY.sign(DOCUMENT) == KEY.sign(document)
    assert signer(b'{"format": "x/1"}') is None


def test_other_programs_can_check_it() -> None:
    """From RFC 8032 and this file's docstring alone."""
    document = json.loads(signed())
    signature = document.pop("signature")
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
    key.verify(bytes.fromhex(signature["value"]), b"datalens-signature/1\n" + canonical)
    assert signed_bytes(document) == b"datalens-signature/1\n" + canonical


def _passes(content: bytes) -> bool:
    """Whether it counts as signed by anybody."""
    try:
        return signer(content) is not None
    except SignatureInvalid:
        return False


def test_no_byte_can_be_changed_without_being_noticed() -> None:
    content, meant = signed(), json.loads(signed())
    for place in range(len(content)):
        for value in (content[place] ^ 1, ord("0"), ord(" ")):
            forged = bytes([*content[:place], value, *content[place + 1 :]])
            try:
                if json.loads(forged) == meant:
                    continue
            except ValueError:
                pass
            assert not _passes(forged), f"byte {place} may be {value}"


@pytest.mark.parametrize(
    "text",
    [
        '{"epsilon": 9, "epsilon": 1, "signature": null}',
        '{"n": NaN, "signature": {}}',
        "[1]",
        "not JSON",
        "[" * 100_000,
    ],
)
def test_what_two_programs_may_read_differently_is_not_signed(text: str) -> None:
    with pytest.raises(SignatureInvalid):
        signer(text.encode())


def test_a_second_member_of_the_same_name_is_refused_though_the_signature_is_right() -> None:
    content = signed().decode().replace('"format": "x/1"', '"format": "y/9", "format": "x/1"', 1).encode()
    assert json.loads(content) == json.loads(signed())
    with pytest.raises(SignatureInvalid, match="once"):
        signer(content)


def test_a_signature_of_another_key_does_not_pass_for_this_one() -> None:
    other = SigningKey(b"other")
    assert signer(json.dumps(other.sign(DOCUMENT)).encode()) == other.public
    mixed = KEY.sign(DOCUMENT)
    mixed["signature"]["public_key"], mixed["signature"]["key_id"] = other.public.hex, other.public.key_id
    with pytest.raises(SignatureInvalid, match="changed"):
        signer(json.dumps(mixed).encode())
    mixed["signature"]["key_id"] = KEY.public.key_id
    with pytest.raises(SignatureInvalid, match="id of the key"):
        signer(json.dumps(mixed).encode())


def test_a_key_is_read_as_digits_as_pem_and_from_a_file(tmp_path: Path) -> None:
    for text in (KEY.public.hex, KEY.public.hex.upper(), KEY.public.pem):
        assert public_key(text) == KEY.public
        path = tmp_path / "key"
        path.write_text(text)
        assert public_key(str(path)) == KEY.public


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    rsa = generate_private_key(65537, 2048).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for text in ("", "abc", "z" * 64, str(tmp_path), str(tmp_path / "none"), rsa.decode(), KEY.public.pem[:60]):
        with pytest.raises(InvalidInput, match="hexadecimal"):
            public_key(text)
