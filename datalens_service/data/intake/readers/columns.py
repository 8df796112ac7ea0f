"""The columns of a table that hold files, labels and groups: those that the owner declares, else the usual ones."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles

FILE: Final = ("file_name", "filename", "file", "image", "image_path", "image_name", "path", "filepath", "file_path")
LABEL: Final = ("label", "labels", "class", "target", "class_name", "category", "diagnosis")
GROUP: Final = (
    "group", "patient", "patient_id", "patientid", "subject", "subject_id", "person", "person_id", "participant",
    "participant_id", "account", "account_id",
)  # fmt: skip

_SHOWN_COLUMNS: Final = 12
_SHOWN_CHARACTERS: Final = 40
_PERSON: Final = re.compile(
    r"(patient|person|subject|participant|proband|mrn|case|study|donor|volunteer|user|customer|client|member|account"
    r"|household|family|employee|student|owner|animal|name|surname|e?mail|group)s?"
    r"([_ -]?(id|no|nr|number|key|code|uid|name))?",
    re.IGNORECASE,
)
_NO_PERSON: Final = frozenset([
    "date", "dates", "time", "times", "datetime", "timestamp", "day", "month", "year", "age", "birth", "dob",
    "studydate", "studytime", "birthdate", "split", "fold", "subset", "partition", "batch", "source", "origin", "site",
    "scanner", "device", "camera", "version",
])  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Columns(NamedTuple):
    """Columns that are read, by their names in the table."""

    file: str
    label: str | None
    group: str | None
    unused: tuple[str, ...]

    @property
    def group_name(self) -> str | None:
        return None if self.group is None else group_word(self.group)


def choose_columns(table: str, present: Sequence[str], choices: ReadingChoices) -> Columns:
    """Choose the columns of a table that are read.

    Raises:
        UnusableFiles: One is missing, or two could be meant.
    """
    file = find_column(table, present, FILE, None, "files", "")
    label = find_column(table, present, LABEL, choices.label_column, "labels", "⟦label_column⟧")
    group = find_column(table, present, GROUP, choices.group_column, "groups", "⟦group_column⟧")
    if file is None or (label is None and group is None):
        raise refused_columns(
            table,
            present,
            "The table needs a column file_name, and label or patient (or others that are named in ⟦label_column⟧ and "
            "⟦group_column⟧). Rename columns, or remove the table if it is not needed.",
        )
    return Columns(file, label, group, tuple(name for name in present if name not in (file, label, group)))


def find_column(
    table: str, present: Sequence[str], usual: tuple[str, ...], declared: str | None, what: str, option: str
) -> str | None:
    """Find one column of a table: the declared one, else the only one with a usual name, else the first usual name.

    Raises:
        UnusableFiles: The declared column is missing, or several could be meant and none has the first name; for
            groups, even if one has.
    """
    if declared is not None:
        if declared not in present:
            raise refused_columns(table, present, f"The table has no column for {what} that is called {declared}.")
        return declared
    found = {name.strip().casefold(): name for name in present if name.strip().casefold() in usual}
    # For groups, a first guess would decide who is protected.
    if len(found) > 1 and (usual[0] not in found or usual is GROUP):
        named = f"Name the right one in {option}." if option else "Rename all but one."
        raise refused_columns(table, list(found.values()), f"Several columns may hold {what}. {named}")
    return found.get(usual[0]) or next(iter(found.values()), None)


def refused_columns(table: str, names: Sequence[str], reason: str) -> UnusableFiles:
    """Return the refusal of a table by its columns.

    A table without a line of names has records in their place, so names are listed beside the name of the table, for
    its owner alone, and are cut off.
    """
    shown = ", ".join(name[:_SHOWN_CHARACTERS] for name in names[:_SHOWN_COLUMNS])
    return UnusableFiles([BadFile(name=f"{table}: {shown}", reason=reason)], 1)


def group_word(column: str) -> str:
    """Return the word for one group, from the name of its column: `patient_id` holds patients."""
    word = re.sub(r"[_ -]?id$", "", re.sub(r"[^\w -]", "", column), flags=re.IGNORECASE).strip(" _-")[:40]
    return word.casefold().removesuffix("s") or "group"


def is_person_column(name: str) -> bool:
    """Tell whether a column is named like a key of persons."""
    return _PERSON.fullmatch(name.strip()) is not None


def is_other_column(name: str) -> bool:
    """Tell whether a column is named like a property of many images that shows no person: a day, a split, a place."""
    return not _NO_PERSON.isdisjoint(word.casefold() for word in _WORD.findall(name))
