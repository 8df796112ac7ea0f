"""Proofs of small real jobs: they verify, every tampered copy is told apart, nothing private is in them."""

import json
import shutil
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.base.signatures import SigningKey
from datalens_service.data.dataset import Dataset, Split
from datalens_service.mechanisms import BoundedSum, Mechanism, PlannedRelease, base
from datalens_service.methods import Moments
from datalens_service.privacy.accounting import Charge as AccountCharge
from datalens_service.privacy.accounting import cost_ledger_units, stated_epsilon, stated_mu
from datalens_service.privacy.recomputation import LARGEST_EPSILON
from datalens_service.proof.job_charges import chain_charges
from datalens_service.proof.job_proof import AccountProof, JobProof
from datalens_service.proof.proof_verification import (
    NOT_VERIFIED_OF_ACCOUNT,
    NOT_VERIFIED_OF_JOB,
    NOT_VERIFIED_OF_LONE_PROOF,
    NOT_VERIFIED_OF_SPENDERS,
    verify,
)
from datalens_service.proof.spenders import Actor, Spender
from datalens_service.proof.verdict import VerificationResult
from datalens_service.report import privacy_statement as statements
from datalens_service.spec import TrainingSpec
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.training import run
from example_proof import example_proof

from .books import claimed, images, journal_of, new_dataset, new_job, prove, read_account, schema
from .forging import Json, Tamper, add, change, multiply, put, seal_charges, seal_journal

CHECKS = ["form", "chain", "totals", "card", "charges", "job", "replace one", "lifetime", "spenders", "signature"]
CHECKS_OF_JOB = ["form", "chain", "card", "charges", "job", "replace one", "signature"]
SPEC = TrainingSpec(method=Moments(subspace_dimensions=3), epsilon=1.0, delta=1e-5)
RECORDS = 40
KEY = SigningKey(b"of a forger")
ACCOUNT_EPSILON = 3.0


def real_proof(database: Database, seed: int, *, lost_releases: int = 0) -> AccountProof:
    """Train on random records; `lost_releases` of the first step were paid and never stored, as after a crash."""
    records = images(seed, RECORDS)
    public = schema(RECORDS)
    stored = new_dataset(database, records, epsilon=ACCOUNT_EPSILON)
    plan = SPEC.plan(public)
    first = plan.releases[0].mechanism
    cost = plan.cost() + lost_releases * first.cost()
    job = new_job(database, stored.id, cost, spec=SPEC.model_dump(mode="json"), plan=plan)
    account = read_account(database, claimed(database, job.id))
    for _ in range(lost_releases):
        account.charge(0, first.label(), first.cost())
    labels = np.random.default_rng(seed).integers(0, 2, RECORDS)
    result = run(SPEC, Dataset(public, Split(records, labels), None, b"k" * 32), account=account)
    return prove(database, job, SPEC, public, plan, result.steps_made)


@pytest.fixture(scope="module")
def books(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("bundle")
    shutil.copy(sqlite_template, folder / "datalens.db")
    opened = Database(f"sqlite:///{folder / 'datalens.db'}", ChargeLog(folder / "ledger.log"))
    yield opened
    opened.dispose()


@pytest.fixture(scope="module")
def made(books: Database) -> AccountProof:
    return real_proof(books, seed=1)


@pytest.fixture
def honest(made: AccountProof) -> Json:
    """The file's content, free to be changed."""
    found: Json = json.loads(made.model_dump_json())
    return found


def verdict_on(bundle: Json) -> VerificationResult:
    """As whoever changes a proof hands it out: signed, by a key of their own."""
    return verify(json.dumps(KEY.sign(bundle)).encode())


def failed_at(verdict: VerificationResult) -> str:
    """Name of the line with the contradiction; asserts that the verdict is built around it."""
    [line] = [line for line in verdict.lines if line.status == "contradiction"]
    checks = [each.check for each in verdict.lines]
    assert checks in (CHECKS, CHECKS_OF_JOB)
    place = checks.index(line.check)
    assert {each.status for each in verdict.lines[:place]} <= {"holds"}
    assert {each.status for each in verdict.lines[place + 1 :]} <= {"not checked"}
    assert verdict.contradiction == f"{line.check}: {line.finding}"
    assert not verdict.holds
    return line.check


def test_a_real_proof_verifies(made: AccountProof, honest: Json) -> None:
    verdict = verdict_on(honest)
    assert (verdict.holds, verdict.contradiction) == (True, None)
    assert [line.check for line in verdict.lines] == CHECKS
    *checked, signature = verdict.lines
    assert {line.status for line in checked} == {"holds"}
    assert (signature.status, "not confirmed" in signature.finding) == ("holds", True)
    assert f"{made.card.privacy.epsilon}" in verdict.lines[5].finding
    assert verdict.not_verified == (*NOT_VERIFIED_OF_ACCOUNT, NOT_VERIFIED_OF_SPENDERS, NOT_VERIFIED_OF_LONE_PROOF)
    assert verdict.given == "journal of an account, for the owner"


def test_a_bundle_with_a_lost_release_verifies(books: Database) -> None:
    """It was paid twice and may have been drawn twice: both count."""
    bundle = real_proof(books, seed=2, lost_releases=2)
    assert sum(entry.kind == "charge" for entry in bundle.entries) == len(bundle.plan) + 2
    proof = JobProof.from_account_proof(bundle)
    assert [charge.number for charge in proof.charges] == list(range(1, len(proof.plan) + 3))
    for file in (bundle, proof):
        verdict = verdict_on(file.model_dump(mode="json"))
        assert verdict.holds, verdict.contradiction


def test_a_price_that_is_too_low_is_found(books: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that agrees with itself, made by a product that charges one percent too little."""
    monkeypatch.setattr(base, "cost_ledger_units", lambda *arguments: cost_ledger_units(*arguments) * 99 // 100)
    assert failed_at(verdict_on(real_proof(books, seed=4).model_dump(mode="json"))) == "charges"


def test_a_conversion_that_is_too_low_is_found(books: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are right, ε is shown one percent too small."""
    monkeypatch.setattr(statements, "stated_epsilon", lambda *arguments: 0.99 * stated_epsilon(*arguments))
    assert failed_at(verdict_on(real_proof(books, seed=5).model_dump(mode="json"))) == "job"


def noise_everywhere(louder: Tamper, place: int) -> Tamper:
    """In the plan and on the card, which states what the mechanism costs then."""

    def tamper(proof: Json) -> None:
        release, stated = proof["plan"][place], proof["card"]["privacy"]["mechanisms"][place]
        louder(release["mechanism"])
        stated["noise_stddev"] = release["mechanism"]["noise_stddev"]
        stated["units"] = PlannedRelease.model_validate(release).mechanism.cost()

    return tamper


def leave_out_a_charge(proof: Json) -> None:
    """The last one, in all totals of the account and of the card."""
    units = proof["entries"].pop()["units"]
    for path, more in (
        (f"{ACCOUNT}charged_units", -units),
        (f"{ACCOUNT}reserved_units", units),
        (f"{CARD}units", -units),
    ):
        add(path, more)(proof)
    proof["card"]["privacy"]["mu"] = stated_mu(proof["card"]["privacy"]["units"])


def end_one_release_earlier(proof: Json) -> None:
    """Card, charges and ε agree with each other, and the plan does not."""
    privacy = proof["card"]["privacy"]
    privacy["mechanisms"].pop()
    privacy["units"] -= proof["charges"].pop()["units"]
    privacy["mu"] = stated_mu(privacy["units"])
    privacy["epsilon"] = stated_epsilon(AccountCharge(privacy["units"]), privacy["delta"])


ACCOUNT, CARD = "account.", "card.privacy."
FIRST_CHARGE = "entries.2."
TAMPERED_EITHER: dict[str, tuple[str, list[Tamper]]] = {
    "other version": ("card", [put("product.version", "0")]),
    "another tier": ("card", [put(f"{CARD}epsilon", 1.5)]),
    "fewer units on the card": ("card", [add(f"{CARD}units", -1)]),
    "lower μ": ("card", [add(f"{CARD}mu", -1e-6)]),
    "more noise on the card": ("card", [add(f"{CARD}mechanisms.0.noise_stddev", 1)]),
    "as if images of one person had been protected together": ("card", [put(f"{CARD}records_per_unit", 5)]),
    "more units than δ allows": ("card", [put(f"{CARD}num_units", 10**12)]),
    "more digits than a number has": (
        "card",
        [put("plan.-1.count", 10**4299), put(f"{CARD}mechanisms.-1.count", 10**4299)],
    ),
    "more releases than memory holds": (
        "charges",
        [
            put("plan.-1.count", 10**12),
            put(f"{CARD}mechanisms.-1.count", 10**12),
            multiply(f"{CARD}mechanisms.-1.units", 10**12),
        ],
    ),
    "less noise was drawn than was paid for": ("charges", [noise_everywhere(add("noise_stddev", -1), 0)]),
    "more noise everywhere": ("job", [noise_everywhere(multiply("noise_stddev", 2), -1)]),
    "lower ε": ("job", [add(f"{CARD}epsilon", -1e-4)]),
    # One digit above what rounding up explains; still in the first tier.
    "higher ε": ("job", [put(f"{CARD}epsilon", 0.99)]),
    "larger δ": ("job", [multiply(f"{CARD}delta", 1.1)]),
    "smaller δ": ("job", [multiply(f"{CARD}delta", 0.5)]),
    "tiny δ": ("job", [put(f"{CARD}delta", 1e-30)]),
    "lower ε of a replacement": ("replace one", [add(f"{CARD}epsilon_replace_one", -1e-4)]),
}
TAMPERED_JOURNAL: dict[str, tuple[str, list[Tamper]]] = {
    "unknown member": ("form", [lambda proof: proof["card"]["privacy"].update(note="trust me")]),
    "number as text": ("form", [change("entries.0.units", str)]),
    "charge of one unit less": ("chain", [add(f"{FIRST_CHARGE}units", -1)]),
    "removed entry": ("chain", [lambda proof: proof["entries"].pop(2)]),
    "removed last entry": ("chain", [lambda proof: proof["entries"].pop()]),
    "reordered entries": ("chain", [lambda proof: proof["entries"].insert(-1, proof["entries"].pop())]),
    "other head": ("chain", [put(f"{ACCOUNT}head.hash", "0" * 64)]),
    "other account": ("chain", [put(f"{ACCOUNT}id", "acc_other")]),
    "entry of another account, well sealed": ("chain", [put("entries.1.account_id", "acc_other"), seal_journal]),
    "instant before all time": ("chain", [put("entries.0.at", "0001-01-01T00:00:00+23:00")]),
    "less charged": ("totals", [add(f"{ACCOUNT}charged_units", -1)]),
    "other δ of the account": ("totals", [multiply(f"{ACCOUNT}delta", 0.5)]),
    "charge of one unit less, well sealed": (
        "charges",
        [
            add(f"{FIRST_CHARGE}units", -1),
            add(f"{ACCOUNT}charged_units", -1),
            add(f"{ACCOUNT}reserved_units", 1),
            add(f"{CARD}units", -1),
            seal_journal,
        ],
    ),
    "charge of another label, well sealed": ("charges", [put(f"{FIRST_CHARGE}label", "votes.topagg"), seal_journal]),
    "charge of an unplanned step, well sealed": ("charges", [put(f"{FIRST_CHARGE}step", 1000), seal_journal]),
    "release without a charge, well sealed": ("charges", [leave_out_a_charge, seal_journal]),
    "lower lifetime": ("lifetime", [add(f"{ACCOUNT}epsilon_spent", -1e-4)]),
    "submitter of another job": ("spenders", [put("spenders.0.job_id", "job_other")]),
    "submitter twice": ("spenders", [lambda proof: proof["spenders"].append(proof["spenders"][0])]),
}
TAMPERED_PROOF: dict[str, tuple[str, list[Tamper]]] = {
    "journal slipped in": ("form", [lambda proof: proof.update(account={"id": "acc_1"})]),
    "charged less": ("chain", [add("charges.0.units", -1)]),
    "charge left out": ("chain", [lambda proof: proof["charges"].pop(0)]),
    "last charge left out": ("chain", [lambda proof: proof["charges"].pop()]),
    "charges exchanged": ("chain", [lambda proof: proof["charges"].reverse()]),
    "charges of another job": ("chain", [put("job_id", "job_other")]),
    "charge with seconds": ("chain", [change("charges.0.minute", lambda at: at.replace(":00Z", ":01Z")), seal_charges]),
    "charge left out, well sealed": ("card", [lambda proof: proof["charges"].pop(), seal_charges]),
    "charged less, well sealed": ("charges", [add("charges.0.units", -1), add(f"{CARD}units", -1), seal_charges]),
    "last release left out everywhere but in the plan": ("charges", [end_one_release_earlier, seal_charges]),
    "more releases planned than paid": ("charges", [add("plan.-1.count", 1)]),
}


@pytest.mark.parametrize("tampered", [*TAMPERED_EITHER, *TAMPERED_JOURNAL])
def test_a_tampered_copy_fails_in_its_line(honest: Json, tampered: str) -> None:
    assert_fails_in_its_line(honest, *(TAMPERED_EITHER | TAMPERED_JOURNAL)[tampered])


@pytest.mark.parametrize("tampered", [*TAMPERED_EITHER, *TAMPERED_PROOF])
def test_a_tampered_proof_of_one_job_fails_in_its_line(published: Json, tampered: str) -> None:
    assert_fails_in_its_line(published, *(TAMPERED_EITHER | TAMPERED_PROOF)[tampered])


def assert_fails_in_its_line(proof: Json, line: str, changes: list[Tamper]) -> None:
    before = deepcopy(proof)
    for tamper in changes:
        tamper(proof)
    assert proof != before
    assert failed_at(verdict_on(proof)) == line


def test_a_mechanism_that_does_not_say_which_units_it_is_priced_for_is_refused(
    honest: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedSum, "covers_whole_units", Mechanism.covers_whole_units)
    assert failed_at(verdict_on(honest)) == "card"


def test_an_epsilon_beyond_dp_accounting_is_checked_by_the_curve_of_a_gaussian() -> None:
    """Of a replacement it may be stated too high, of the job it may not, and too low never."""
    loose = example_proof(90.0)
    stated = loose["card"]["privacy"]["epsilon_replace_one"]
    assert stated > LARGEST_EPSILON
    assert "by the curve of one Gaussian" in verdict_on(loose).lines[CHECKS_OF_JOB.index("replace one")].finding
    assert verdict_on(loose).holds
    for forged, line in (
        ({"epsilon_replace_one": 2 * stated}, None),
        ({"epsilon_replace_one": stated - 0.01}, "replace one"),
        ({"epsilon_replace_one": LARGEST_EPSILON + 0.01}, "replace one"),
        ({"epsilon": 110.0}, "job"),
    ):
        changed = deepcopy(loose)
        changed["card"]["privacy"] |= forged
        if line is None:
            assert verdict_on(changed).holds
        else:
            assert failed_at(verdict_on(changed)) == line


def test_without_dp_accounting_there_is_no_verdict(honest: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(WorkerUnavailable, match="pip install"):
        verdict_on(honest)


def test_nothing_in_it_depends_on_the_records(books: Database, made: AccountProof) -> None:
    """Other images and other labels of the same public schema: the same bundle, but for random ids and their hashes."""
    assert _masked(real_proof(books, seed=3)) == _masked(made)


@pytest.fixture
def published(made: AccountProof) -> Json:
    """The content of `privacy.json`, free to be changed."""
    content: Json = json.loads(JobProof.from_account_proof(made).model_dump_json())
    return content


def test_the_proof_of_one_job_verifies(made: AccountProof, published: Json) -> None:
    verdict = verdict_on(published)
    assert (verdict.holds, verdict.contradiction) == (True, None)
    assert [line.check for line in verdict.lines] == CHECKS_OF_JOB
    assert verdict.given == "proof of one job, publishable"
    assert f"{made.card.privacy.epsilon}" in verdict.lines[4].finding
    assert verdict.not_verified == (*NOT_VERIFIED_OF_JOB, NOT_VERIFIED_OF_LONE_PROOF)
    assert "lifetime of the account" in verdict.not_verified[-2]


def test_the_proof_of_one_job_says_nothing_of_its_account(made: AccountProof, published: Json) -> None:
    text = json.dumps(published)
    assert set(published) == {"format", "product", "job_id", "card", "plan", "charges", "head", "signature"}
    fields = {"number", "kind", "step", "label", "units", "minute", "previous_hash", "hash"}
    assert all(set(charge) == fields for charge in published["charges"])
    for entry in made.entries:
        assert entry.hash not in text
        assert entry.account_id not in text


def test_what_shares_the_account_leaves_no_trace_in_the_proof_of_one_job(database: Database) -> None:
    """The same charges with another upload, another job and other numbers between them."""
    first, linked = new_dataset(database, epsilon=9.0), new_dataset(database, images(0)[:5], epsilon=9.0)
    job, other = (new_job(database, one.id, 9) for one in (first, linked))
    accounts = [read_account(database, claimed(database, one.id)) for one in (job, other)]
    for step in range(4):
        accounts[step % 2].charge(step, "votes", 3)
    journal = journal_of(database, first.id)
    alone = [entry for entry in journal if entry.job_id == job.id]
    assert chain_charges(job.id, journal) == chain_charges(job.id, alone)
    assert [charge.ledger_units for charge in chain_charges(job.id, journal)] == [3, 3]


def test_the_proof_of_the_account_names_who_spent_and_that_of_a_job_does_not(made: AccountProof) -> None:
    [spender] = made.spenders
    assert (spender.job_id, spender.submitted_by) == (made.job_id, Actor(id="key_test", name=None))
    named = made.model_copy(update={"spenders": (Spender(job_id=made.job_id, submitted_by=Actor(id="i", name="Q")),)})
    assert JobProof.from_account_proof(named) == JobProof.from_account_proof(made)
    assert "key_test" not in JobProof.from_account_proof(made).model_dump_json()


def test_an_account_proof_of_an_earlier_version_still_verifies(honest: Json) -> None:
    """It did not name who spent."""
    honest["format"] = "datalens-bundle/1"
    assert "spenders" in (verdict_on(honest).contradiction or "")
    del honest["spenders"]
    verdict = verdict_on(honest)
    assert (verdict.holds, verdict.contradiction) == (True, None)
    assert [line.check for line in verdict.lines] == [check for check in CHECKS if check != "spenders"]
    assert verdict.not_verified == (*NOT_VERIFIED_OF_ACCOUNT, NOT_VERIFIED_OF_LONE_PROOF)


def test_a_job_whose_submitter_was_not_recorded_is_counted(honest: Json) -> None:
    honest["spenders"][0]["submitted_by"] = None
    assert "of 1 it was not recorded" in verdict_on(honest).lines[-2].finding


def _masked(proof: AccountProof) -> Json:
    found: Json = proof.model_dump(mode="json")
    del found["job_id"], found["spenders"], found["account"]["id"], found["account"]["head"]["hash"]
    for entry in found["entries"]:
        for name in ("account_id", "dataset_id", "job_id", "at", "previous_hash", "hash"):
            del entry[name]
    return found
