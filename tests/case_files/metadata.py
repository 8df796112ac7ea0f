"""Cases of tables beside the images: their encodings, separators, columns, and rows that do not fit."""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.data.builders import zipped

from .pictures import in_folders, pets, png, put_into
from .registry import case_file

NAMES: Final = tuple(f"img_{number}.png" for number in range(6))
LABELS: Final = ("cat", "dog") * 3


def csv(header: str, *columns: Iterable[str], separator: str = ",") -> str:
    """Lines of a table; `header` has the separator of the table."""
    rows = [separator.join(row) for row in zip(*columns, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def flat(names: Sequence[str] = NAMES) -> dict[str, bytes]:
    return {name: png(number) for number, name in enumerate(names)}


def beside(name: str, table: bytes, files: Mapping[str, bytes]) -> bytes:
    return zipped({**files, name: table})


TABLE: Final = csv("file_name,label", NAMES, LABELS)
QUOTED: Final = csv("file_name,label", (f'"{name}"' for name in NAMES), ('"dog ""big"""', '"cat, small"') * 3)
ACCOUNTS: Final = ("ACC-0001",) * 3 + ("ACC-0002",) * 3
AMOUNTS: Final = tuple(f"{number}9.50" for number in range(6))
PATIENTS: Final = tuple(f"MRN-{1 + number // 2:04}" for number in range(6))

TABLES: Final = {
    "meta_csv.zip": TABLE.encode(),
    "meta_csv_bom.zip": TABLE.encode("utf-8-sig"),
    "meta_csv_utf16.zip": TABLE.encode("utf-16"),
    "meta_csv_semicolon.zip": csv("file_name;label", NAMES, LABELS, separator=";").encode(),
    "meta_csv_tab.zip": csv("file_name\tlabel", NAMES, LABELS, separator="\t").encode(),
    "meta_csv_quoted.zip": QUOTED.encode(),
    "meta_csv_latin1.zip": csv("file_name,label", NAMES, ("café", "dog") * 3).encode("latin-1"),
    "meta_csv_floatlabel.zip": csv("file_name,label", NAMES, ("0.0", "1.0") * 3).encode(),
    "meta_csv_missingfile.zip": f"{TABLE}img_6.png,cat\n".encode(),
    "meta_csv_extrafile.zip": csv("file_name,label", NAMES[:5], LABELS[:5]).encode(),
    "meta_csv_duprow.zip": f"{TABLE}img_1.png,dog\n".encode(),
    "meta_csv_emptylabel.zip": csv("file_name,label", NAMES, (*LABELS[:3], "", *LABELS[4:])).encode(),
    "meta_csv_filename_class.zip": csv("filename,class", NAMES, LABELS).encode(),
    "meta_csv_image_path_target.zip": csv("image_path,target", NAMES, LABELS).encode(),
    "meta_csv_patient_id.zip": csv("file_name,label,patient_id", NAMES, LABELS, PATIENTS).encode(),
    "meta_csv_account.zip": csv("file_name,label,account,amount", NAMES, LABELS, ACCOUNTS, AMOUNTS).encode(),
}
"""The metadata.csv that lies beside the same six images."""

for _name, _table in TABLES.items():
    case_file(_name)(lambda table=_table: beside("metadata.csv", table, flat()))


@case_file("meta_jsonl_int.zip")
def whole_numbers_in_json_lines() -> bytes:
    rows = [json.dumps({"file_name": name, "label": number % 2}) for number, name in enumerate(NAMES)]
    return beside("metadata.jsonl", ("\n".join(rows) + "\n").encode("utf-8-sig"), flat())


@case_file("meta_jsonl_array.zip")
def an_array_in_place_of_json_lines() -> bytes:
    rows = [{"file_name": name, "label": label} for name, label in zip(NAMES, LABELS, strict=True)]
    return beside("metadata.jsonl", json.dumps(rows).encode(), flat())


@case_file("b_labels_csv_flat.zip")
def the_table_has_another_name() -> bytes:
    return beside("labels.csv", TABLE.encode(), flat())


@case_file("b_labels_csv.zip")
def the_table_contradicts_the_folders() -> bytes:
    table = csv("file_name,label", pets(), ("young", "old", "old") * 2)
    return beside("labels.csv", table.encode(), pets())


@case_file("meta_csv_backslash.zip")
def backslashes_in_the_paths_of_the_table() -> bytes:
    paths = (f"scans\\{name}" for name in NAMES)
    return beside("metadata.csv", csv("file_name,label", paths, LABELS).encode(), put_into("scans", flat()))


@case_file("meta_group_only.zip")
def a_table_of_groups_beside_class_folders() -> bytes:
    files = in_folders(("cat", "dog"), each=4)
    table = csv("file_name,group", files, (f"g{number // 2}" for number in range(8)))
    return beside("metadata.csv", table.encode(), files)


@case_file("meta_csv_split.zip")
def a_table_in_each_split() -> bytes:
    test = {name: png(6 + number) for number, name in enumerate(NAMES)}
    splits = {"train": flat(), "test": test}
    tables = {f"{split}/metadata.csv": TABLE.encode() for split in splits}
    return zipped({**put_into("train", splits["train"]), **put_into("test", splits["test"]), **tables})


@case_file("b_meta_nfc_files_nfd.zip")
def one_name_composed_in_the_table_and_decomposed_in_the_archive() -> bytes:
    composed = [f"é_{number}.png" for number in range(6)]
    decomposed = [unicodedata.normalize("NFD", name) for name in composed]
    return beside("metadata.csv", csv("file_name,label", composed, LABELS).encode(), flat(decomposed))
