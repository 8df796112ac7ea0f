"""Persons in names of files, where nothing else says who an image shows: "person17_bacteria_3.jpeg".

A name is cut into words. It may name a person

 - by a word for persons with a number: "patient12_03", "subj04-left", "sub-A7_ses-1"
 - by how it begins, if that has a number and something else follows: "IM-0001-0002", "00000013_005", "10_left". The
   shortest beginning counts whose numbers differ among names that begin alike, so "SOB_B_A-14-22549AB-40-001" names
   22549AB, since all have the 14.

Numbers do not name a person if they are a day or a year, count parts of the data ("fold3", "frame_12"), or sort images
like a class does: each class has one number, or a few numbers have very many images each. What follows must be more
than the name of the class ("12_cat"). A word without a number names nobody: "airplane_s_000004", "Abyssinian_1" and
"img_0" are one image each. What is found is a guess for the owner to answer; nothing is read otherwise because of it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from datalens_service.data.intake.identifying_names import DATE

PRIVATE_READS = ("reading the upload",)

_PERSON: Final = re.compile(
    r"(?<![a-z])(?P<word>patients?|pat|pt|persons?|people|subjects?|subj|sub|participants?|probands?|volunteers?|donors?"
    r"|cases?|clients?|customers?|users?|students?|employees?|members?|mrn|pid)[\s_#.-]*(?:id|no|nr|number)?[\s_#.-]*"
    r"(?P<number>\d+)|(?<![a-z])sub-(?P<label>[a-z0-9]+)",
    re.IGNORECASE,
)
_PART: Final = re.compile(
    r"(batch|fold|split|part|set|subset|shard|chunk|train|training|test|testing|val|valid|validation|class|label|digit"
    r"|category|level|grade|page|frame|day|week|month|year|version|v)(\d*)"
)
_SIZE: Final = re.compile(r"\d+x\d+")
_WORD: Final = re.compile(r"[^\W_]+")
_DIGITS: Final = re.compile(r"\d+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")

_MOST_IMAGES: Final = 1000
"""More images cannot be of one person: no unit may have more (`MAXIMUM_RECORDS_PER_UNIT`)."""
_FEW_KEYS, _MANY_IMAGES = 20, 100
_IMAGES_OF_A_CLASS: Final = 10
_MOST_WORDS: Final = 16
_YEARS: Final = range(1990, 2040)
_SPLITS: Final = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})


class FileName(NamedTuple):
    """A name of a file with the class of its image."""

    name: str
    label: str
    is_test: bool


class NamedPerson(NamedTuple):
    """A possible person, by what names have in common."""

    key: str
    images: int
    test_images: int

    def __str__(self) -> str:
        return f"{self.key}: {self.images} images" + f" ({self.test_images} to test on)" * (self.test_images > 0)


class _Name(NamedTuple):
    """A name in words, of which those behind the first `length` repeat its class or its split."""

    stem: str
    words: tuple[str, ...]
    ends: tuple[int, ...]
    length: int

    def beginning(self, length: int) -> str:
        return self.stem[: self.ends[length - 1]]


def persons_in_names(files: Sequence[FileName]) -> list[NamedPerson]:
    """Return the persons whom several names seem to name, those with most images first."""
    keys = _find_keys(files)
    rows_of = defaultdict[str, list[int]](list)
    for row, key in keys.items():
        rows_of[key.casefold()].append(row)
    found = [
        NamedPerson(keys[rows[0]], len(rows), sum(files[row].is_test for row in rows))
        for rows in rows_of.values()
        if len(rows) > 1
    ]
    return sorted(found, key=lambda person: (-person.images, person.key))


def _find_keys(files: Sequence[FileName]) -> dict[int, str]:
    """Find keys of persons, by the rows of those names that have one."""
    stems = [_stem(file.name) for file in files]
    said = {row: key for row, stem in enumerate(stems) if (key := _key_by_word(stem)) is not None}
    # One for everything tells nobody from anybody.
    found = said if len({key.casefold() for key in said.values()}) > 1 else {}
    labels = [file.label for file in files]
    of_class = _words_of_classes(stems, labels)
    others = {row: _cut(stem, of_class[labels[row]]) for row, stem in enumerate(stems) if row not in said}
    return {**found, **_keys_by_beginning(others, labels)}


def _stem(name: str) -> str:
    """Strip folders, ending and days from a name."""
    return DATE.sub("date", name.rpartition("/")[2].rpartition(".")[0] or name)


def _key_by_word(stem: str) -> str | None:
    found = _PERSON.search(stem)
    if found is None:
        return None
    return f"sub-{found['label']}" if found["label"] else f"{found['word'].rstrip('sS')}{found['number']}"


def _words_of_classes(stems: Sequence[str], labels: Sequence[str]) -> dict[str, set[str]]:
    """Find the words of the name of each class that all of its files have in their names."""
    found = {label: set(_WORD.findall(label.casefold())) for label in set(labels)}
    for stem, label in zip(stems, labels, strict=True):
        found[label] &= set(_WORD.findall(stem.casefold()))
    return found


def _cut(stem: str, of_class: set[str]) -> _Name:
    matches = list(_WORD.finditer(stem))
    words = tuple(match[0].casefold() for match in matches)
    length = len(words)
    while length and (words[length - 1] in of_class or words[length - 1] in _SPLITS):
        length -= 1
    return _Name(stem, words, tuple(match.end() for match in matches), length)


def _keys_by_beginning(names: Mapping[int, _Name], labels: Sequence[str]) -> dict[int, str]:
    """Find keys of names by the shortest beginning that may name persons."""
    found = dict[int, str]()
    longest = max((name.length for name in names.values()), default=0)
    for length in range(1, min(longest, _MOST_WORDS)):
        alike = defaultdict[tuple[str, ...], list[int]](list)
        for row, name in names.items():
            if row not in found and name.length > length:
                alike[_shape(name.words[:length])].append(row)
        for rows in alike.values():
            # A test split often counts from the start again: the same name in the same class tells nothing.
            different = {(labels[row], names[row].words): row for row in rows}.values()
            if _may_be_persons({row: names[row].words[:length] for row in different}, labels):
                found |= {row: names[row].beginning(length) for row in rows}
    keys = {key.casefold() for key in found.values()}
    whole = {row: name.stem for row, name in names.items() if row not in found and name.stem.casefold() in keys}
    return found | whole


def _shape(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_LETTERS.sub("a", _DIGITS.sub("0", word)) for word in words)


def _may_be_persons(beginnings: Mapping[int, tuple[str, ...]], labels: Sequence[str]) -> bool:
    """Tell whether beginnings of one shape have numbers that differ, repeat, and do more than repeat the class."""
    sizes, classes = Counter(beginnings.values()), defaultdict[str, set[tuple[str, ...]]](set)
    for row, words in beginnings.items():
        classes[labels[row]].add(words)
    images, keys, largest = len(beginnings), len(sizes), max(sizes.values())
    numbers = {_numbers(words) for words in sizes} - {()}
    are_years = all(len(found) == 1 and int(found[0]) in _YEARS for found in numbers)
    sort_like_classes = all(len(found) == 1 for found in classes.values()) or (
        keys <= len(set(labels)) and images >= _IMAGES_OF_A_CLASS * keys
    )
    are_parts = largest > _MOST_IMAGES or (keys < _FEW_KEYS and images > _MANY_IMAGES * keys)
    return len(numbers) > 1 and largest > 1 and not (are_years or sort_like_classes or are_parts)


def _numbers(words: Iterable[str]) -> tuple[str, ...]:
    """Return the numbers in words, without those that count parts of the data or pixels."""
    found, in_part = list[str](), False
    for word in words:
        part = _PART.fullmatch(word)
        if part is None and not in_part and not _SIZE.fullmatch(word):
            found += _DIGITS.findall(word)
        in_part = part is not None and not part[2]
    return tuple(found)
