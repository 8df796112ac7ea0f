"""Proofs of small real jobs: they verify, every tampered copy is told apart, nothing private is in them."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Split
from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation.report import privacy_statement as statements
from datalens_service.mechanisms import BoundedSum, Mechanism, PlannedRelease, base
from datalens_service.methods import Moments
from datalens_service.privacy.accounting import Charge as AccountCharge
from datalens_service.privacy.accounting import cost_units, epsilon_of_charge, mu_of_units, round_up
from datalens_service.proof.hash_chain import GENESIS, Entry
from datalens_service.proof.job_charges import Charge, chain_charges, genesis
from datalens_service.proof.job_proof import AccountProof, JobProof
from datalens_service.proof.proof_verification import NOT_VERIFIED_OF_ACCOUNT, NOT_VERIFIED_OF_JOB, Verdict, verify
from datalens_service.run import run
from datalens_service.signatures import SigningKey
from datalens_service.spec import TrainingSpec
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database

from .books import claimed, images, journal_of, new_dataset, new_job, prove, read_account, schema

CHECKS = ["form", "chain", "totals", "card", "charges", "job", "replace one", "lifetime", "signature"]
CHECKS_OF_JOB = ["form", "chain", "card", "charges", "job", "replace one", "signature"]
SPEC = TrainingSpec(method=Moments(subspace_dimensions=3), epsilon=1.0, delta=1e-5)
RECORDS = 40
KEY = SigningKey(b"of a forger")
ACCOUNT_EPSILON = 3.0

Json = dict[str, Any]
Tamper = Callable[[Json], None]


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


def verdict_on(bundle: Json) -> Verdict:
    """As whoever changes a proof hands it out: signed, by a key of their own."""
    return verify(json.dumps(KEY.sign(bundle)).encode())


def failed_at(verdict: Verdict) -> str:
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


def reseal(bundle: Json) -> None:
    """What a forger with time does: a chain that is well sealed from the first to the last entry."""
    previous = GENESIS
    for number, fields in enumerate(bundle["entries"], start=1):
        fields |= {"seq": number, "previous_hash": previous, "at": datetime.fromisoformat(fields["at"])}
        fields.pop("hash")
        sealed = Entry.sealed(**fields)
        fields |= sealed.model_dump(mode="json")
        previous = sealed.hash
    bundle["account"]["head"] = {"seq": len(bundle["entries"]), "hash": previous}


def charges(bundle: Json) -> list[Json]:
    return [entry for entry in bundle["entries"] if entry["kind"] == "charge"]


def test_a_real_proof_verifies(made: AccountProof, honest: Json) -> None:
    verdict = verdict_on(honest)
    assert (verdict.holds, verdict.contradiction) == (True, None)
    assert [line.check for line in verdict.lines] == CHECKS
    *checked, signature = verdict.lines
    assert {line.status for line in checked} == {"holds"}
    assert (signature.status, "Nobody vouched" in signature.finding) == ("holds", True)
    assert f"{made.card.privacy.epsilon:g}" in verdict.lines[5].finding
    assert verdict.not_verified == NOT_VERIFIED_OF_ACCOUNT
    assert verdict.given == "journal of an account, for the owner"


def test_a_bundle_with_a_lost_release_verifies(books: Database) -> None:
    """It was paid twice and may have been drawn twice: both count."""
    bundle = real_proof(books, seed=2, lost_releases=2)
    assert sum(entry.kind == "charge" for entry in bundle.entries) == len(bundle.plan) + 2
    verdict = verdict_on(bundle.model_dump(mode="json"))
    assert verdict.holds, verdict.contradiction


def test_a_price_that_is_too_low_is_found(books: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that agrees with itself, made by a product that charges one percent too little."""
    monkeypatch.setattr(base, "cost_units", lambda *arguments: cost_units(*arguments) * 99 // 100)
    assert failed_at(verdict_on(real_proof(books, seed=4).model_dump(mode="json"))) == "charges"


def test_a_conversion_that_is_too_low_is_found(books: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are right, ε is shown one percent too small."""
    monkeypatch.setattr(statements, "epsilon_of_charge", lambda *arguments: 0.99 * epsilon_of_charge(*arguments))
    assert failed_at(verdict_on(real_proof(books, seed=5).model_dump(mode="json"))) == "job"


def one_unit_less(bundle: Json) -> None:
    charges(bundle)[0]["units"] -= 1


def removed_entry(bundle: Json) -> None:
    bundle["entries"].remove(charges(bundle)[0])


def removed_last_entry(bundle: Json) -> None:
    bundle["entries"].pop()


def reordered_entries(bundle: Json) -> None:
    entries = bundle["entries"]
    entries[-1], entries[-2] = entries[-2], entries[-1]


def other_head(bundle: Json) -> None:
    bundle["account"]["head"]["hash"] = "0" * 64


def other_account(bundle: Json) -> None:
    bundle["account"]["id"] = "acc_other"


def less_charged(bundle: Json) -> None:
    bundle["account"]["charged_units"] -= 1


def other_account_delta(bundle: Json) -> None:
    bundle["account"]["delta"] /= 2


def lower_epsilon(bundle: Json) -> None:
    bundle["card"]["privacy"]["epsilon"] -= 1e-4


def lower_epsilon_replace_one(bundle: Json) -> None:
    bundle["card"]["privacy"]["epsilon_replace_one"] -= 1e-4


def higher_epsilon(bundle: Json) -> None:
    # One digit above what rounding up explains; still in the first tier.
    bundle["card"]["privacy"]["epsilon"] = 0.99


def higher_noise_on_the_card(bundle: Json) -> None:
    bundle["card"]["privacy"]["mechanisms"][0]["noise_stddev"] += 1


def higher_noise_everywhere(bundle: Json) -> None:
    bundle["plan"][-1]["mechanism"]["noise_stddev"] *= 2
    last = bundle["card"]["privacy"]["mechanisms"][-1]
    last["noise_stddev"] *= 2
    last["units"] = PlannedRelease.model_validate(bundle["plan"][-1]).mechanism.cost()


def lower_noise_everywhere(bundle: Json) -> None:
    """As if less noise had been drawn than was paid for."""
    bundle["plan"][0]["mechanism"]["noise_stddev"] -= 1
    first = bundle["card"]["privacy"]["mechanisms"][0]
    first["noise_stddev"] -= 1
    first["units"] = PlannedRelease.model_validate(bundle["plan"][0]).mechanism.cost()


def larger_delta_on_the_card(bundle: Json) -> None:
    bundle["card"]["privacy"]["delta"] *= 1.1


def smaller_delta_on_the_card(bundle: Json) -> None:
    bundle["card"]["privacy"]["delta"] /= 2


def tiny_delta_on_the_card(bundle: Json) -> None:
    bundle["card"]["privacy"]["delta"] = 1e-30


def lower_mu(bundle: Json) -> None:
    bundle["card"]["privacy"]["mu"] -= 1e-6


def better_tier(bundle: Json) -> None:
    bundle["card"]["privacy"]["epsilon"] = 1.5


def fewer_units_on_the_card(bundle: Json) -> None:
    bundle["card"]["privacy"]["units"] -= 1


def more_records_per_unit_on_the_card(bundle: Json) -> None:
    """As if images of one person had been protected together."""
    bundle["card"]["privacy"]["records_per_unit"] = 5


def more_units_than_delta_allows(bundle: Json) -> None:
    bundle["card"]["privacy"]["num_units"] = 10**12


def lower_lifetime(bundle: Json) -> None:
    bundle["account"]["epsilon_spent"] -= 1e-4


def other_version(bundle: Json) -> None:
    bundle["product"]["version"] = "0"


def charge_of_one_unit_less_well_sealed(bundle: Json) -> None:
    charges(bundle)[0]["units"] -= 1
    bundle["account"]["charged_units"] -= 1
    bundle["account"]["reserved_units"] += 1
    bundle["card"]["privacy"]["units"] -= 1
    reseal(bundle)


def charge_of_another_label_well_sealed(bundle: Json) -> None:
    charges(bundle)[0]["label"] = "votes.topagg"
    reseal(bundle)


def charge_of_an_unplanned_step_well_sealed(bundle: Json) -> None:
    charges(bundle)[0]["step"] = 1000
    reseal(bundle)


def release_without_a_charge_well_sealed(bundle: Json) -> None:
    missing = charges(bundle)[-1]
    bundle["entries"].remove(missing)
    bundle["account"]["charged_units"] -= missing["units"]
    bundle["account"]["reserved_units"] += missing["units"]
    bundle["card"]["privacy"]["units"] -= missing["units"]
    bundle["card"]["privacy"]["mu"] = float(np.ceil(np.sqrt(bundle["card"]["privacy"]["units"] / 1e15) * 1e6) / 1e6)
    reseal(bundle)


def entry_of_another_account_well_sealed(bundle: Json) -> None:
    bundle["entries"][1]["account_id"] = "acc_other"
    reseal(bundle)


def unknown_member(bundle: Json) -> None:
    bundle["card"]["privacy"]["note"] = "trust me"


def number_as_text(bundle: Json) -> None:
    bundle["entries"][0]["units"] = str(bundle["entries"][0]["units"])


def more_releases_than_memory_holds(bundle: Json) -> None:
    bundle["plan"][-1]["count"] = 10**12
    last = bundle["card"]["privacy"]["mechanisms"][-1]
    last |= {"count": 10**12, "units": last["units"] * 10**12}


def more_digits_than_a_number_has(bundle: Json) -> None:
    bundle["plan"][-1]["count"] = 10**4299
    last = bundle["card"]["privacy"]["mechanisms"][-1]
    last |= {"count": 10**4299}


def instant_before_all_time(bundle: Json) -> None:
    bundle["entries"][0]["at"] = "0001-01-01T00:00:00+23:00"


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (unknown_member, "form"),
        (number_as_text, "form"),
        (one_unit_less, "chain"),
        (removed_entry, "chain"),
        (removed_last_entry, "chain"),
        (reordered_entries, "chain"),
        (other_head, "chain"),
        (other_account, "chain"),
        (entry_of_another_account_well_sealed, "chain"),
        (instant_before_all_time, "chain"),
        (less_charged, "totals"),
        (other_account_delta, "totals"),
        (higher_noise_on_the_card, "card"),
        (fewer_units_on_the_card, "card"),
        (lower_mu, "card"),
        (better_tier, "card"),
        (other_version, "card"),
        (more_records_per_unit_on_the_card, "card"),
        (more_units_than_delta_allows, "card"),
        (more_digits_than_a_number_has, "card"),
        (more_releases_than_memory_holds, "charges"),
        (charge_of_one_unit_less_well_sealed, "charges"),
        (charge_of_another_label_well_sealed, "charges"),
        (charge_of_an_unplanned_step_well_sealed, "charges"),
        (release_without_a_charge_well_sealed, "charges"),
        (lower_noise_everywhere, "charges"),
        (lower_epsilon, "job"),
        (higher_epsilon, "job"),
        (higher_noise_everywhere, "job"),
        (larger_delta_on_the_card, "job"),
        (smaller_delta_on_the_card, "job"),
        (tiny_delta_on_the_card, "job"),
        (lower_epsilon_replace_one, "replace one"),
        (lower_lifetime, "lifetime"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_tampered_copy_fails_in_its_line(honest: Json, tamper: Tamper, line: str) -> None:
    before = deepcopy(honest)
    tamper(honest)
    assert honest != before
    assert failed_at(verdict_on(honest)) == line


def test_a_mechanism_that_does_not_say_which_units_it_is_priced_for_is_refused(
    honest: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedSum, "covers_whole_units", Mechanism.covers_whole_units)
    assert failed_at(verdict_on(honest)) == "card"


def test_a_signature_that_was_taken_away_is_missed_and_one_that_never_was_is_not(honest: Json) -> None:
    assert honest["signature"] is None
    taken = verify(json.dumps(honest).encode())
    assert failed_at(taken) == "form"
    assert "Nobody signed it" in (taken.contradiction or "")
    honest["product"]["version"] = honest["card"]["product"]["version"] = "0.1.0"
    old = verify(json.dumps(honest).encode())
    assert old.holds
    assert old.lines[0].finding.endswith("Nobody signed it.")


def test_an_epsilon_that_promises_nothing_is_not_recomputed(honest: Json) -> None:
    honest["card"]["privacy"]["epsilon_replace_one"] = 250.0
    verdict = verdict_on(honest)
    assert verdict.holds
    assert "not recomputed" in verdict.lines[CHECKS.index("replace one")].finding


def test_without_dp_accounting_there_is_no_verdict(honest: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(WorkerUnavailable, match="pip install"):
        verdict_on(honest)


def test_nothing_in_it_depends_on_the_records(books: Database, made: AccountProof) -> None:
    """Other images and other labels of the same public schema: the same bundle, but for random ids and their hashes."""
    assert _masked(real_proof(books, seed=3)) == _masked(made)


def test_its_times_are_whole_minutes(made: AccountProof) -> None:
    assert all((entry.at.second, entry.at.microsecond) == (0, 0) for entry in made.entries)


@pytest.fixture
def published(made: AccountProof) -> Json:
    """The content of `privacy.json`, free to be changed."""
    content: Json = json.loads(JobProof.from_account_proof(made).model_dump_json())
    return content


def rechain(proof: Json) -> None:
    """What a forger with time does to the charges of a job."""
    previous = genesis(proof["job_id"])
    for number, fields in enumerate(proof["charges"], start=1):
        fields |= {"number": number, "previous_hash": previous, "minute": datetime.fromisoformat(fields["minute"])}
        fields.pop("hash")
        sealed = Charge.sealed(**fields)
        fields |= sealed.model_dump(mode="json")
        previous = sealed.hash
    proof["head"] = previous


def test_the_proof_of_one_job_verifies(made: AccountProof, published: Json) -> None:
    verdict = verdict_on(published)
    assert (verdict.holds, verdict.contradiction) == (True, None)
    assert [line.check for line in verdict.lines] == CHECKS_OF_JOB
    assert verdict.given == "proof of one job, publishable"
    assert f"{made.card.privacy.epsilon:g}" in verdict.lines[4].finding
    assert verdict.not_verified == NOT_VERIFIED_OF_JOB
    assert "lifetime of the account" in verdict.not_verified[-1]


def test_the_proof_of_one_job_numbers_its_charges_from_one(books: Database) -> None:
    """Also of a job whose step was charged again; another job between them leaves no gap."""
    proof = JobProof.from_account_proof(real_proof(books, seed=6, lost_releases=2))
    assert [charge.number for charge in proof.charges] == list(range(1, len(proof.plan) + 3))
    assert verdict_on(proof.model_dump(mode="json")).holds


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
    assert [charge.units for charge in chain_charges(job.id, journal)] == [3, 3]


def charged_less(proof: Json) -> None:
    proof["charges"][0]["units"] -= 1


def charge_left_out(proof: Json) -> None:
    proof["charges"].pop(0)


def last_charge_left_out(proof: Json) -> None:
    proof["charges"].pop()


def charges_exchanged(proof: Json) -> None:
    proof["charges"].reverse()


def charges_of_another_job(proof: Json) -> None:
    proof["job_id"] = "job_other"


def charge_with_seconds(proof: Json) -> None:
    proof["charges"][0]["minute"] = proof["charges"][0]["minute"].replace(":00Z", ":01Z")
    rechain(proof)


def charge_left_out_and_rechained(proof: Json) -> None:
    proof["charges"].pop()
    rechain(proof)


def last_release_left_out_everywhere_but_in_the_plan(proof: Json) -> None:
    """Card, charges and ε agree with each other, as if the job had ended one release earlier."""
    privacy = proof["card"]["privacy"]
    privacy["mechanisms"].pop()
    privacy["units"] -= proof["charges"].pop()["units"]
    privacy["mu"] = round_up(mu_of_units(privacy["units"]), 6)
    privacy["epsilon"] = round_up(epsilon_of_charge(AccountCharge(privacy["units"]), privacy["delta"]))
    rechain(proof)


def more_releases_planned_than_paid(proof: Json) -> None:
    proof["plan"][-1]["count"] += 1


def charged_less_and_rechained(proof: Json) -> None:
    proof["charges"][0]["units"] -= 1
    proof["card"]["privacy"]["units"] -= 1
    rechain(proof)


def journal_slipped_in(proof: Json) -> None:
    proof["account"] = {"id": "acc_1"}


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (journal_slipped_in, "form"),
        (charged_less, "chain"),
        (charge_left_out, "chain"),
        (last_charge_left_out, "chain"),
        (charges_exchanged, "chain"),
        (charges_of_another_job, "chain"),
        (charge_with_seconds, "chain"),
        (charge_left_out_and_rechained, "card"),
        (lower_mu, "card"),
        (charged_less_and_rechained, "charges"),
        (last_release_left_out_everywhere_but_in_the_plan, "charges"),
        (more_releases_planned_than_paid, "charges"),
        (lower_noise_everywhere, "charges"),
        (lower_epsilon, "job"),
        (higher_noise_everywhere, "job"),
        (lower_epsilon_replace_one, "replace one"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_tampered_proof_of_one_job_fails_in_its_line(published: Json, tamper: Tamper, line: str) -> None:
    before = deepcopy(published)
    tamper(published)
    assert published != before
    assert failed_at(verdict_on(published)) == line


def _masked(proof: AccountProof) -> Json:
    found: Json = proof.model_dump(mode="json")
    del found["job_id"], found["account"]["id"], found["account"]["head"]["hash"]
    for entry in found["entries"]:
        for name in ("account_id", "dataset_id", "job_id", "at", "previous_hash", "hash"):
            del entry[name]
    return found
