"""`datalens verify` on the proofs that `datalens train` left, and on copies of them.

`datalens verify --key`: the key as digits, as PEM and as a file; exit codes and what is printed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from datalens_service.base.signatures import MEMBER, SigningKey
from datalens_service.cli.app import app
from datalens_service.proof.proof_verification import (
    NOT_VERIFIED_OF_ACCOUNT,
    NOT_VERIFIED_OF_JOB,
    NOT_VERIFIED_OF_LONE_PROOF,
    NOT_VERIFIED_OF_SPENDERS,
)
from example_proof import EXAMPLE_PROOF, of_version

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle beside the other files of a run."""
    folder = tmp_path_factory.mktemp("trained")
    npz, out = folder / "noise.npz", folder / "out"
    rng = np.random.default_rng(4)
    np.savez(npz, train_images=rng.integers(0, 256, (80, 8, 8), dtype=np.uint8), train_labels=np.arange(80) % 2)
    options = ["--epsilon", "1", "--method", "moments", "--synthetic-images", "10", "--no-evaluation", "--json"]
    result = CliRunner().invoke(app, ["train", "--confirm-classes", "--data", str(npz), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    path = Path(json.loads(result.stdout)["files"]["privacy.json"])
    assert path == out / "privacy.json"
    return path


@pytest.fixture
def tampered(trained: Path, tmp_path: Path) -> Path:
    bundle = json.loads(trained.read_text(encoding="utf-8"))
    bundle["card"]["privacy"]["epsilon"] -= 0.01
    path = tmp_path / "tampered.json"
    path.write_text(json.dumps(bundle), encoding="utf-8")
    return path


OF_JOB = ["form", "chain", "card", "charges", "job", "replace one"]
OF_ACCOUNT = ["form", "chain", "totals", "card", "charges", "job", "replace one", "lifetime", "spenders"]
CANNOT_OF_ACCOUNT = (*NOT_VERIFIED_OF_ACCOUNT, NOT_VERIFIED_OF_SPENDERS)


@pytest.mark.parametrize(
    ("name", "given", "checks", "cannot"),
    [
        ("privacy.json", "proof of one job, publishable", OF_JOB, NOT_VERIFIED_OF_JOB),
        ("account-proof.json", "journal of an account, for the owner", OF_ACCOUNT, CANNOT_OF_ACCOUNT),
    ],
)
def test_says_what_it_was_given_what_holds_and_what_nobody_can_show(
    datalens: Run, trained: Path, name: str, given: str, checks: list[str], cannot: tuple[str, ...]
) -> None:
    result = datalens("verify", trained.with_name(name))
    assert result.exit_code == 0, result.output
    first, _, *shown = result.stdout.splitlines()
    assert first == f"Given: {given}."
    assert [line.split("  ")[0] for line in shown[: len(checks)]] == ["holds"] * len(checks)
    assert all(check in line for check, line in zip(checks, shown, strict=False))
    assert "by dp_accounting" in shown[checks.index("job")]
    assert [line.strip() for line in shown[-len(cannot) - 1 :]] == [*cannot, NOT_VERIFIED_OF_LONE_PROOF]
    assert result.stderr == ""


def test_the_folder_of_a_run_has_no_sums_so_its_files_are_not_checked(datalens: Run, trained: Path) -> None:
    unknown = datalens("verify", trained.parent)
    assert unknown.exit_code == 1
    assert "not checked    files              There is no SHA256SUMS" in unknown.stdout
    assert "Do not rely on all of it: not everything was checked. files: There is no SHA256SUMS" in unknown.stdout
    assert "Give privacy.json alone to check the proof." in unknown.stdout
    expected = datalens("verify", "--key", trained.with_name("signing-key.pem"), trained.parent)
    assert expected.exit_code == 1
    assert "Do not rely on it. files: There is no SHA256SUMS" in expected.stdout


def test_proofs_of_a_run_are_as_private_as_their_audience(trained: Path) -> None:
    assert trained.stat().st_mode & 0o077
    assert trained.with_name("account-proof.json").stat().st_mode & 0o077 == 0


def test_a_tampered_copy_is_1_and_the_contradiction_is_named(datalens: Run, tampered: Path) -> None:
    result = datalens("verify", tampered)
    assert result.exit_code == 1
    assert "contradiction  job " in result.stdout
    assert "Do not rely on it. job: ε of the job" in result.stdout
    assert "not checked    replace one" in result.stdout


def test_shape_of_the_json(datalens: Run, trained: Path, tampered: Path) -> None:
    for path, holds in ((trained, True), (tampered, False)):
        result = datalens("verify", path, "--json")
        verdict: dict[str, Any] = json.loads(result.stdout)
        assert (result.exit_code, verdict["holds"]) == (0 if holds else 1, holds)
        assert set(verdict) == {"given", "holds", "contradiction", "lines", "not_verified"}
        assert (verdict["contradiction"] is None) == holds
        assert len(verdict["lines"]) == 7
        assert all(set(line) == {"check", "status", "finding"} for line in verdict["lines"])


def test_another_file_is_2_and_named(datalens: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_bytes(b"\x89PNG")
    others = [trained.with_name(name) for name in ("card.json", "report.json", "generator.safetensors")]
    for path in (*others, tmp_path / "notes.json"):
        result = datalens("verify", path, "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["code"]) == (2, "invalid-input")
        assert "Give the job's privacy.json" in error["detail"]
    assert datalens("verify", tmp_path / "missing.json").exit_code == 2
    assert datalens("verify", tmp_path).exit_code == 2


def test_without_dp_accounting_it_says_what_to_install(
    datalens: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    result = datalens("verify", trained)
    assert (result.exit_code, result.stdout) == (5, "")
    assert "pip install 'datalens-service[worker]'" in result.stderr


def test_a_proof_sends_nothing_to_the_terminal(datalens: Run, trained: Path, tmp_path: Path) -> None:
    bundle = json.loads(trained.read_text(encoding="utf-8"))
    bundle["job_id"] = "job\x1b]0;all is well\x07[bold]"
    path = tmp_path / "escape.json"
    path.write_text(json.dumps(bundle), encoding="utf-8")
    shown = datalens("verify", path).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "all is well" in shown
    assert "[bold]" in shown


KEY, OTHER = SigningKey(b"of this house"), SigningKey(b"of another")


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps(KEY.sign(EXAMPLE_PROOF)))
    return path


def test_the_key_may_be_given(datalens: Run, proof: Path, tmp_path: Path) -> None:
    pem = tmp_path / "signing-key.pem"
    pem.write_text(KEY.public.pem)
    result = datalens("verify", "--key", pem, proof)
    assert result.exit_code == 0, result.output
    assert f"Signed by the given key, {KEY.public.key_id}." in result.stdout
    assert "Everything above holds." in result.stdout


def test_without_a_key_the_signer_is_named_and_left_to_the_reader(datalens: Run, proof: Path) -> None:
    result = datalens("verify", proof)
    assert result.exit_code == 0
    assert f"Signed by key {KEY.public.key_id}. The key is not confirmed: no --key was given." in result.stdout
    assert "The signing key is not confirmed: name the key that you expect with --key." in result.stdout


def test_the_wrong_key_is_1_and_no_key_is_2(datalens: Run, proof: Path) -> None:
    wrong = datalens("verify", "--key", OTHER.public.hex, proof)
    assert wrong.exit_code == 1
    assert "Do not rely on it." in wrong.stdout
    assert datalens("verify", "--key", "abc", proof).exit_code == 2


def test_a_proof_that_claims_to_be_old_needs_its_signature_as_well(datalens: Run, proof: Path) -> None:
    proof.write_text(json.dumps({**of_version(EXAMPLE_PROOF, "0.9.0"), MEMBER: None}))
    for key in ((), ("--key", KEY.public.hex)):
        result = datalens("verify", *key, proof)
        assert result.exit_code == 1
        assert "Do not rely on it. signature: Nobody signed it." in result.stdout


def test_a_file_with_several_keys_is_refused(datalens: Run, proof: Path, tmp_path: Path) -> None:
    pem = tmp_path / "keys.pem"
    pem.write_text(KEY.public.pem + OTHER.public.pem)
    result = datalens("verify", "--key", pem, proof)
    assert result.exit_code == 2
    assert "several keys" in result.stderr
