"""The sentence of the guarantee, word for word: a change of what is promised has to be meant."""

from datalens_service.privacy.accounting import Charge, limit_units
from datalens_service.privacy.guarantee import PrivacyUnit, account_guarantee, card_guarantee, job_guarantee

DELTA = 1e-5
CHARGE = Charge(limit_units(1.0, DELTA))


def test_a_job_on_single_images_says_what_somebody_with_five_of_them_has() -> None:
    assert job_guarantee(PrivacyUnit("record"), 1.0, DELTA, CHARGE, 2.0723) == (
        "The guarantee of this job protects each training image by itself, with its label: ε = 1 at δ = 1e-5 where one "
        "image is left out and its place stays empty, ε = 2.0723 at the same δ where it is replaced. Other jobs on the "
        "same images add to it. Whoever has more than one image among them is protected less: with five images, "
        "ε = 6.167 at the same δ."
    )


def test_a_job_on_declared_units_protects_all_images_of_one() -> None:
    card = {"unit": "patient", "records_per_unit": 5, "epsilon": 1.0, "delta": DELTA, "units": CHARGE.ledger_units}
    assert card_guarantee({**card, "epsilon_replace_one": 2.0}) == (
        "The guarantee of this job protects each patient with all its training images, at most 5, and their labels: "
        "ε = 1 at δ = 1e-5 where one patient is left out and its place stays empty, ε = 2 at the same δ where it is "
        "replaced. Other jobs on the same images add to it. Whoever counts as more than one patient is protected less."
    )


def test_an_account_speaks_of_all_jobs_and_of_its_owner() -> None:
    sentence = account_guarantee(PrivacyUnit("record"), 3.3, DELTA, limit_units(3.3, DELTA))
    assert "all jobs on these images together, now and later, spend at most ε = 3.3 at δ = 1e-5" in sentence
    assert "unless the owner raises this limit" in sentence


def test_a_unit_with_one_image_and_a_word_of_the_owner_keeps_the_word() -> None:
    assert PrivacyUnit("patient").protected() == "each patient with its one training image and the label of it"
    assert PrivacyUnit("record", 3).word == "record"


def test_beside_a_slack_no_figure_is_stated_for_several_images() -> None:
    """The loss of several images is bounded by k²·μ² alone where δ pays for nothing else."""
    sentence = job_guarantee(PrivacyUnit("record"), 1.0, DELTA, Charge(CHARGE.ledger_units, 10**11))
    assert sentence.endswith("Whoever has more than one image among them is protected less.")
