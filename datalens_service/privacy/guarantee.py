"""The sentence of the guarantee: whom ε protects, against which change, at which ε and δ, and of which jobs.

Pages, reports, what lies beside a release, the command line and clients state the guarantee in these words alone, so
that none of them can promise more than another: ε is about one privacy unit, and not about a person who has several.
"""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, NamedTuple

from scipy.special import ndtr

from datalens_service.base.parsing import decimal_text
from datalens_service.privacy.accounting import SLACK_UNITS_PER_DELTA, Charge, round_up, stated_epsilon, stated_mu


def membership_advantage(mu: float, slack: float = 0.0) -> float:
    """Return the largest difference of true and false positive rate, 2Φ(μ/2) − 1 + slack, rounded up to four digits.

    Dong, Roth & Su 2022, Section 2; a slack of δ adds to it.
    """
    return min(1.0, round_up(2 * float(ndtr(mu / 2)) - 1 + slack, 4))


def right_guesses(advantage: float) -> str:
    """Return right guesses out of 100 at a membership advantage, prior one half, rounded up to two digits."""
    return f"{(50 + 50 * Decimal(repr(advantage))).quantize(Decimal('0.01'), ROUND_CEILING).normalize():f}"


def tell_risk(word: str, charge: Charge) -> str:
    """Return the largest success of guesses as a sentence.

    Args:
        word: The readers' word for one unit.
        charge: The charge of a job, or of all jobs.
    """
    advantage = membership_advantage(stated_mu(charge.ledger_units), charge.slack / SLACK_UNITS_PER_DELTA)
    most = math.ceil(Decimal(right_guesses(advantage)))
    return f"Of 100 guesses whether one {word} was used, at most {most} are right; a coin gets 50."


RECORD: Final = "record"
"""The name of a unit that its owner did not name."""
_SEVERAL: Final = 5


class PrivacyUnit(NamedTuple):
    """The unit that is protected as a whole.

    Attributes:
        name: The owner's word for one unit.
        records: Largest number of training images of one unit.
    """

    name: str
    records: int = 1

    @property
    def is_image(self) -> bool:
        """Tell whether every image is protected by itself."""
        return self.name == RECORD and self.records == 1

    @property
    def word(self) -> str:
        """Return the word by which readers know one unit."""
        return "image" if self.is_image else self.name

    def write_count(self, number: int) -> str:
        """Write how many units, in the word by which readers know them."""
        return f"{number:,} {self.word}{'' if number == 1 else 's'}"

    def protected(self) -> str:
        """Describe whom the guarantee protects."""
        if self.is_image:
            return "each training image by itself, with its label"
        if self.records == 1:
            return f"each {self.word} with its one training image and the label of it"
        return f"each {self.word} with all its training images, at most {self.records:,}, and their labels"


def job_guarantee(
    unit: PrivacyUnit, epsilon: float, delta: float, charge: Charge, replace_one: float | None = None
) -> str:
    """State the guarantee of one job.

    Args:
        epsilon: The stated ε of the job under zero-out, at δ.
        charge: The charge that ε was computed from.
        replace_one: ε at the same δ where one unit is replaced; None if it is not known here.
    """
    replaced = "" if replace_one is None else f", ε = {decimal_text(replace_one)} at the same δ where it is replaced"
    return (
        f"The guarantee of this job protects {unit.protected()}: ε = {decimal_text(epsilon)} at δ = "
        f"{decimal_text(delta)} where one {unit.word} is left out and its place stays empty{replaced}. Other jobs on "
        f"the same images add to it. {_several(unit, charge, delta)}"
    )


def account_guarantee(unit: PrivacyUnit, epsilon: float, delta: float, limit_units: int) -> str:
    """State the guarantee of all jobs that an account pays for, within its limit (ε, δ) of `limit_units`."""
    return (
        f"The guarantee protects {unit.protected()}: all jobs on these images together, now and later, spend at most "
        f"ε = {decimal_text(epsilon)} at δ = {decimal_text(delta)} where one {unit.word} is left out and its place "
        f"stays empty, unless the owner raises this limit. {_several(unit, Charge(limit_units), delta)}"
    )


def card_guarantee(privacy: Mapping[str, Any]) -> str:
    """State the guarantee of the job whose card has these members under `privacy`."""
    return job_guarantee(
        PrivacyUnit(privacy["unit"], privacy.get("records_per_unit", 1)),
        privacy["epsilon"],
        privacy["delta"],
        Charge(privacy["units"], privacy.get("slack", 0)),
        privacy["epsilon_replace_one"],
    )


def report_guarantee(privacy: Mapping[str, Any]) -> str:
    """State the guarantee of the job whose report has these members under `privacy`."""
    headline, replace_one = privacy["headline"], privacy["replace_one"]
    return job_guarantee(
        PrivacyUnit(privacy["unit"], privacy["records_per_unit"]),
        headline["points"][0]["epsilon"],
        privacy["delta"],
        Charge(headline["units"], headline.get("slack", 0)),
        replace_one["points"][0]["epsilon"],
    )


def _several(unit: PrivacyUnit, charge: Charge, delta: float) -> str:
    """Warn those who count several times: k images multiply μ by k, and units by k²."""
    if not unit.is_image:
        return f"Whoever counts as more than one {unit.word} is protected less."
    if charge.slack:
        return "Whoever has more than one image among them is protected less."
    several = stated_epsilon(Charge(_SEVERAL**2 * charge.ledger_units), delta)
    return (
        f"Whoever has more than one image among them is protected less: with five images, ε = {several} at the same δ."
    )


def advise_on_budget(remaining: float, reserved: float) -> str:
    """Say what helps where a budget does not cover a job, as the end of a sentence.

    Args:
        remaining: ε that a new job may ask for.
        reserved: ε that is set aside for jobs that have not ended.
    """
    ways = []
    if remaining > 0:
        ways.append("ask for less")
    if reserved > 0:
        ways.append("wait for running jobs to return what they do not spend")
    return ", or ".join(ways) or "nothing of it is left for another job"
