"""Every file of `tests/case_files` gets the right answer from the readers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset
from datalens_service.base.wording import speak
from datalens_service.data import read_with_notices
from datalens_service.data.dataset import Schema, Split, Upload
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles
from datalens_service.data.notices import Notice
from datalens_service.services.dataset_declaration import DatasetForm
from tests.case_files import MAKERS, case_path
from tests.input_cases import CASES, WINDOW, Case, Read, Refused


def read(path: Path, choices: dict[str, Any]) -> tuple[Upload, tuple[Notice, ...]]:
    return read_with_notices(path, DatasetForm.model_validate(choices).choices)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_is_right(case: Case) -> None:
    if isinstance(case.answer, Refused):
        with pytest.raises(InvalidDataset) as caught:
            read(case.path, case.choices)
        check_refusal(case.answer, caught.value)
    else:
        check_records(case.answer, *read(case.path, case.choices))


def check_refusal(answer: Refused, refusal: InvalidDataset) -> None:
    assert speak(answer.sentence) in refusal.detail
    named = {file.name for file in refusal.bad_files} if isinstance(refusal, UnusableFiles) else set()
    assert set(answer.names) <= named


def check_records(answer: Read, upload: Upload, notices: tuple[Notice, ...]) -> None:
    schema = upload.schema
    assert count(schema, upload.train) == answer.classes
    assert count(schema, upload.test) == answer.test
    assert (schema.unit, schema.num_units) == (answer.unit or ("record", sum(answer.classes.values())))
    assert answer.size in (None, (schema.width, schema.height, schema.channels))
    noticed = {notice.code.value: notice.count for notice in notices}
    assert {code: noticed.get(code) for code in answer.notices} == answer.notices


def count(schema: Schema, split: Split | None) -> dict[str, int]:
    if split is None:
        return {}
    return dict(zip(schema.class_names, np.bincount(split.labels, minlength=schema.num_classes).tolist(), strict=True))


@pytest.mark.parametrize(
    ("file", "example"),
    [
        ("meta_csv_missingfile.zip", "metadata.csv line 8: img_6.png"),
        ("folders_emptyclass.zip", "horse"),
        ("split_val.zip", "val/cat/0.png"),
        ("junk_checkpoints.zip", "cat/.ipynb_checkpoints/0-checkpoint.png"),
        ("key_medmnist.npz", "val_images"),
        ("test_in_train.zip", "test image 3"),
    ],
)
def test_a_notice_names_what_it_is_about(file: str, example: str) -> None:
    _, notices = read(case_path(file), {})
    assert example in {example for notice in notices for example in notice.examples}


def test_every_file_is_a_case_and_is_the_same_every_time() -> None:
    assert MAKERS.keys() == {case.file for case in CASES}
    assert [name for name, make in MAKERS.items() if make() != make()] == []


def test_ignored_groups_are_named_in_the_schema() -> None:
    upload, _ = read(case_path("dicom_mixed_class_folders.zip"), {**WINDOW, "ignore_groups": True})
    assert upload.schema.groups_ignored
    assert not read(case_path("folders.zip"), {"ignore_groups": True})[0].schema.groups_ignored
