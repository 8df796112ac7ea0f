"""Class names that look like names or numbers of persons: class names are published, and persons must not be.

A name alone decides for most patterns (`looks_identifying`); a few show only in the set of all names.
"""

import re
from collections.abc import Sequence
from typing import Final

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles

MANY_CLASSES: Final = 50
FEW_IMAGES: Final = 10
"""More classes than the first with fewer images than the second, on average, are rarely classes."""

_PERSON: Final = (
    "mrn|pid|pat|patient|patients|patid|subject|subj|person|participant|proband|individual|case|donor|volunteer"
    "|study|accession|acc|encounter|visit|user|uid|customer|client|member|account|acct|employee|emp|student|owner"
    "|household|family|animal|passport|ssn|nhs|nino|id|name"
)
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r".*[^@\s]@[^@\s]+\.[a-z]{2,}.*",  # an e-mail address
        r".*\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b.*",  # a UUID
        r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{10,}",  # a digest
        r"\d+(\.\d+){3,}",  # a UID of DICOM, an address
        rf"({_PERSON})[\s_#.:-]*(no|nr|number|id)?[\s_#.:-]*\d+.*",  # patient 12, MRN-0001
        r"sub-\w+",  # a subject of BIDS
        r".*\^.*",  # a name of DICOM
        r".*(?<!\d)(19|20)\d\d[-_./](0?[1-9]|1[0-2])[-_./](0?[1-9]|[12]\d|3[01])(?!\d).*",  # 2024-02-29
        r".*(?<!\d)(0?[1-9]|[12]\d|3[01])[-_./](0?[1-9]|1[0-2])[-_./]((19|20)\d\d|\d\d)(?!\d).*",  # 29.02.2024
        r"0\d{3,}",  # 0001
    )
)
_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"(?:[T _-]*\d\d[:_.-]?\d\d(?:[:_.-]?\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
DATE: Final = re.compile(
    rf"(?<!\d)(?:{_YEAR}(?P<a>[-_./]){_MONTH}(?P=a){_DAY}|{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    rf"|{_DAY}(?P<b>[-_./]){_MONTH}(?P=b)(?:{_YEAR}|\d\d)){_CLOCK}(?!\d)"
)
"""A day, perhaps with a time of day, anywhere in a text."""
_NUMBERED: Final = re.compile(r"(?P<stem>[a-z]{1,3})[\s_.-]*\d+", re.IGNORECASE)
_PERSON_STEMS: Final = frozenset({"p", "pt", "s", "su", "sj", "sub", "v", "vol", "n", "nr", "no"})
_FEWEST_DIGITS: Final = 4
_MIXED: Final = re.compile(r"(?:[a-z]+\d+){3,}[a-z]*|(?:\d+[a-z]+){3,}\d*", re.IGNORECASE)
_WHAT_TO_DO: Final = (
    "Add a metadata.csv with the columns file_name, label and patient, so that persons become the groups that are "
    "protected; or, if these really are classes that may be published, set ⟦allow_identifying_classes⟧."
)


def looks_identifying(name: str) -> bool:
    """Tell whether a name looks like that of a person, a record or a date.

    Digits alone are classes up to three of them; names with digits in them (covid19, h1n1, type-2) are, too.
    """
    plain = name.strip()
    letters, digits = sum(map(str.isalpha, plain)), sum(map(str.isdigit, plain))
    mostly_digits = digits >= _FEWEST_DIGITS and digits > letters
    return mostly_digits or any(p.fullmatch(plain) for p in _PATTERNS) or _MIXED.fullmatch(plain) is not None


def is_date(text: str) -> bool:
    """Tell whether a text is a day, perhaps with a time of day, and nothing else."""
    return DATE.fullmatch(text.strip()) is not None


def identifying_names(names: Sequence[str]) -> list[str]:
    """List the class names that look like persons, in order."""
    numbered = [found["stem"].casefold() for found in map(_NUMBERED.fullmatch, names) if found]
    if len(numbered) == len(names) > 1 and set(numbered) <= _PERSON_STEMS:
        return list(names)
    return [name for name in names if looks_identifying(name)]


def check_publishable(names: Sequence[str], num_images: int) -> None:
    """Refuse class names that look like persons.

    Raises:
        UnusableFiles: Names them.
        InvalidDataset: There are more classes than a set of this size has.
    """
    refuse_persons(identifying_names(names), "they look like identifiers of persons", len(names))
    if len(names) > MANY_CLASSES and num_images < FEW_IMAGES * len(names):
        raise InvalidDataset(
            f"Class names are published, and these {len(names)} classes have fewer than {FEW_IMAGES} images each on "
            f"average, as folders of persons have. {_WHAT_TO_DO}"
        )


def refuse_persons(names: Sequence[str], why: str, count: int) -> None:
    if names:
        reason = f"Class names are published, and {why}. {_WHAT_TO_DO}"
        raise UnusableFiles([BadFile(name=name, reason=reason) for name in names], count)
