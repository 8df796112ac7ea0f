"""The persons in an upload: keys of persons, persons in both splits, and notices about them.

A person is whatever an upload groups images by: a patient, an account. Everything here is private: it reaches the
owner in notices and refusals, and nobody else.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from datalens_service.base.errors import InvalidDataset, PersonsInBothSplits
from datalens_service.data.dataset import NOBODY, GroupIds, Split, UnitIds, Upload
from datalens_service.data.intake.readers.base import Groups
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.privacy_units import group_identities, group_key, identities, spell_groups

PRIVATE_READS = ("reading the upload",)

_PLACEHOLDER: Final = re.compile(
    r"(an+onym\w*|anon|unknown|unnamed|undefined|notavailable|none|null|nil|nan|n[/.]?a|missing|nobody|noname|nopatient"
    r"|de-?identified|removed|redacted|hidden|xxx+|[^\w]*)"
)
_NOT_PUBLIC: Final = (
    "A test split that is public must not show persons who have training images: they would be public, too. Put all "
    "images of one person into one split, or leave ⟦public_test⟧ out."
)
_ZEROS: Final = re.compile(r"0+")
_PARTS: Final = re.compile(r"[^\W\d_]+|\d+")


class PersonsNamedInBoth(PersonsInBothSplits, UnusableFiles):
    """A refusal whose `bad_files` names the persons, with the number of images they have in each split."""


class Persons(NamedTuple):
    """The persons in the records of a split.

    Attributes:
        units: int64 (n,), identities of privacy units, if groups are to be units; of training records alone.
        groups: int64 (n,), identities of persons, as `Split.groups`.
        names: One name of each person, by `groups`; empty where the upload has identities alone.
    """

    units: UnitIds | None
    groups: GroupIds | None
    names: Mapping[int, str]


def identify(groups: Groups) -> Persons:
    """Return identities of groups. A key that stands for nobody makes a unit, but is no person."""
    if groups.names is None:
        return Persons(groups.unit_ids, groups.group_ids, {})
    spellings = spell_groups(name for name in groups.names if name is not None)
    placeholders = find_placeholders(groups.names)
    persons = [None if name is None or group_key(name) in placeholders else name for name in groups.names]
    ids = group_identities(persons)
    names = {int(number): spellings[name] for number, name in zip(ids, persons, strict=True) if name is not None}
    units = None if None in groups.names else identities(groups.names)
    return Persons(units, ids, names)


def find_placeholders(names: Iterable[str | None]) -> dict[str, int]:
    """Return keys that stand for nobody, with the number of their images.

    These are words such as "anonymous", and 0 if most images have it.
    """
    counts = Counter(group_key(name) for name in names if name is not None)
    return {
        key: count
        for key, count in counts.items()
        if _PLACEHOLDER.fullmatch(key) or (_ZEROS.fullmatch(key) and 2 * count > counts.total())
    }


def refuse_one_for_all(groups: Groups) -> None:
    """Refuse training images that all have one key, which tells no person from another.

    Raises:
        InvalidDataset: All images have one key.
    """
    names, word = groups.names or (), groups.word
    if len(names) > 1 and None not in names and len({group_key(name) for name in names if name is not None}) == 1:
        raise InvalidDataset(
            f"All {len(names):,} training images have the same {word}, as anonymised exports do, so nothing says which "
            f"images show the same {word}. Say it of each image, or set ⟦ignore_groups⟧ to protect single images."
        )


def note_keys(splits: Sequence[Groups], notices: Notices) -> None:
    """Note keys that may name the same person, or nobody, in all splits together; those with most images first."""
    names = [name for groups in splits for name in groups.names or () if name is not None]
    images, spellings = Counter(map(group_key, names)), defaultdict[str, dict[str, None]](dict)
    for name in dict.fromkeys(names):
        spellings[group_key(name)][name.strip()] = None
    most = [key for key, _ in images.most_common()]
    joined = [f"{_listed(spellings[key])}: {images[key]} images" for key in most if len(spellings[key]) > 1]
    notices.add(NoticeCode.KEYS_JOINED, joined)
    alike = defaultdict[tuple[str, ...], list[str]](list)
    for key in most:
        alike[_parts(next(iter(spellings[key])))].append(key)
    pairs = [keys for parts, keys in alike.items() if len(keys) > 1 and parts]
    pairs.sort(key=lambda keys: -sum(images[key] for key in keys))
    said = (
        f"{_listed(next(iter(spellings[key])) for key in keys)}: {sum(images[k] for k in keys)} images"
        for keys in pairs
    )
    notices.add(NoticeCode.KEYS_ALIKE, said)
    nobody = Counter(find_placeholders(names)).most_common()
    notices.add(NoticeCode.PLACEHOLDER_KEYS, (f"{_listed(spellings[key])}: {count} images" for key, count in nobody))


def note_splits(upload: Upload, names: Mapping[int, str], notices: Notices) -> None:
    """Note persons in both splits, and test images of which nothing says whose they are.

    Args:
        names: One name of each person, by identity.
    """
    train, test = upload.train, upload.test
    if test is None or train.groups is None:
        return
    notices.add(NoticeCode.PERSONS_IN_BOTH, map(str, persons_in_both(train, test, names, upload.schema.unit)))
    groups = np.full(len(test.labels), NOBODY) if test.groups is None else test.groups
    notices.add(NoticeCode.TEST_PERSONS_UNKNOWN, (f"test image {row}" for row in np.flatnonzero(groups == NOBODY)))


class PersonInBoth(NamedTuple):
    """A person with training images and test images."""

    name: str
    train: int
    test: int

    def __str__(self) -> str:
        images = [
            f"{count} {kind} image{'s' * (count > 1)}"
            for count, kind in ((self.train, "training"), (self.test, "test"))
        ]
        return f"{self.name}: {' and '.join(images)}"


def persons_in_both(train: Split, test: Split, names: Mapping[int, str], word: str) -> list[PersonInBoth]:
    """Return persons who have images in both splits, those with most test images first."""
    shared = test.is_of_persons_in(train)
    if not shared.any() or train.groups is None or test.groups is None:
        return []
    in_test, in_train = Counter(test.groups[shared].tolist()), Counter(train.groups.tolist())
    return [
        PersonInBoth(names.get(person, f"a {word} without a name"), in_train[person], count)
        for person, count in in_test.most_common()
    ]


def refuse_persons_in_both(train: Split, test: Split, names: Mapping[int, str], word: str) -> None:
    """Refuse a test split that is to be public and shows persons who have training images.

    Raises:
        PersonsNamedInBoth: Names them.
    """
    found = persons_in_both(train, test, names, word)
    if found:
        raise PersonsNamedInBoth([BadFile(name=str(one), reason=_NOT_PUBLIC) for one in found], len(test.labels))


def _parts(key: str) -> tuple[str, ...]:
    """Split a key into words and numbers, so that "P-01", "P_1" and "p1" are alike, but "1-12" and "11-2" are not."""
    return tuple(part.lstrip("0") or "0" for part in _PARTS.findall(key.casefold()))


def _listed(names: Iterable[str]) -> str:
    return " = ".join(name or "(empty)" for name in names)
