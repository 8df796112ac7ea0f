"""`datalens verify --key`: the key as digits, as PEM and as a file; exit codes and what is printed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from datalens_service.signatures import MEMBER, SigningKey
from example_proof import EXAMPLE_PROOF, of_version

Run = Callable[..., Result]
KEY, OTHER = SigningKey(b"of this house"), SigningKey(b"of another")


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps(KEY.sign(EXAMPLE_PROOF)))
    return path


def test_the_key_may_be_given_in_each_form(datalens: Run, proof: Path, tmp_path: Path) -> None:
    pem = tmp_path / "signing-key.pem"
    pem.write_text(KEY.public.pem)
    for key in (KEY.public.hex, KEY.public.pem, pem):
        result = datalens("verify", "--key", key, proof)
        assert result.exit_code == 0, result.output
        assert f"Signed by the given key, {KEY.public.key_id}." in result.stdout
        assert "Everything above holds." in result.stdout


def test_without_a_key_the_signer_is_named_and_left_to_the_reader(datalens: Run, proof: Path) -> None:
    result = datalens("verify", proof)
    assert result.exit_code == 0
    assert f"Signed by key {KEY.public.key_id}. Nobody vouched for it: no --key was given." in result.stdout
    assert "Nobody vouched for the key that signed: name the key you expect with --key." in result.stdout


def test_the_wrong_key_is_1_and_no_key_is_2(datalens: Run, proof: Path) -> None:
    wrong = datalens("verify", "--key", OTHER.public.hex, proof)
    assert wrong.exit_code == 1
    assert "Do not rely on it." in wrong.stdout
    assert datalens("verify", "--key", "abc", proof).exit_code == 2


def test_an_old_proof_that_nobody_signed_is_said_to_be_unsigned(datalens: Run, proof: Path) -> None:
    proof.write_text(json.dumps({**of_version(EXAMPLE_PROOF, "0.1.0"), MEMBER: None}))
    result = datalens("verify", proof)
    assert result.exit_code == 0
    assert "not checked" in result.stdout
    assert "What was checked holds; it is not signed." in result.stdout
    assert datalens("verify", "--key", KEY.public.hex, proof).exit_code == 1
