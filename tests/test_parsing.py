"""Numbers in one notation, JSON in which every member occurs once."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datalens_service.base.parsing import (
    PrivacyParameter,
    RefusedMember,
    decimal_number,
    decimal_text,
    flag,
    json_value,
    spell_number,
    whole_number,
)

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
TEXTS = st.text(CHARACTERS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=20
)
LAX = [
    "1_0",
    " 1",
    "1 ",
    "1\n",
    "+1",
    "٣",
    "１",
    "0x10",
    "1e1_0",
    "1.",
    ".",
    "",
    "-",
    "e5",
    "1,5",
    "nan",
    "inf",
    "Infinity",
]


@pytest.mark.parametrize("text", [*LAX, "1e999", "-1e999", "true", "1j", "0b1", "1__0"])
def test_a_decimal_number_has_one_notation(text: str) -> None:
    with pytest.raises(ValueError, match="plain decimal notation"):
        decimal_number(text)


@pytest.mark.parametrize("text", [*LAX, "1.0", "1e3", "0o7", "True"])
def test_a_whole_number_is_digits(text: str) -> None:
    with pytest.raises(ValueError, match="decimal digits"):
        whole_number(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_programs_write_is_read(number: float) -> None:
    assert decimal_number(repr(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_shown_without_rounding(number: float) -> None:
    assert decimal_number(decimal_text(number)) == number
    assert (
        str(PrivacyParameter(number)) == f"{PrivacyParameter(number)}" == spell_number(number) == decimal_text(number)
    )


@pytest.mark.parametrize(
    "typed",
    [
        "0",
        "0.05",
        "0.0005",
        "0.0001",
        "1e-5",
        "5.55e-6",
        "0.1",
        "1",
        "1.1",
        "3.3",
        "12.3457",
        "100",
        "1234.5",
        "0.12345",
    ],
)
def test_what_was_typed_is_shown_as_it_was_typed(typed: str) -> None:
    assert decimal_text(decimal_number(typed)) == typed


@pytest.mark.parametrize("spec", ["g", ".2f", ".4", ",", "e", "%", "8"])
def test_tests_refuse_a_format_that_rounds_a_privacy_parameter(spec: str) -> None:
    """`conftest.py` sees to it, so that none of this product's sentences has one."""
    with pytest.raises(AssertionError, match="rounded by the format"):
        format(PrivacyParameter(0.05), spec)


@given(st.integers())
def test_integers_are_read(number: int) -> None:
    assert whole_number(str(number)) == number
    assert decimal_number(str(number % 10**15)) == number % 10**15


@given(st.text())
def test_any_other_text_is_refused_and_never_guessed(text: str) -> None:
    for read in (decimal_number, whole_number):
        try:
            number = read(text)
        except ValueError:
            continue
        assert set(text) <= set("-0123456789.eE+")
        assert math.isfinite(number)


@pytest.mark.parametrize("text", ["1", "yes", "on", "t", "", " true", "null"])
def test_a_flag_is_a_word(text: str) -> None:
    assert flag("true") is flag("True") is True
    assert flag("false") is False
    with pytest.raises(ValueError, match="true or false"):
        flag(text)


@given(DOCUMENTS)
def test_a_document_without_doubt_is_read_as_ever(document: Any) -> None:
    text = json.dumps(document)
    assert json_value(text) == json.loads(text)
    assert json_value(text.encode()) == json.loads(text)


@given(
    st.lists(st.text(CHARACTERS, max_size=3) | st.integers(0, 3), max_size=6),
    st.text(CHARACTERS, max_size=5),
    DOCUMENTS,
    DOCUMENTS,
)
def test_a_member_that_occurs_twice_is_named_however_deep(
    path: list[str | int], name: str, first: Any, second: Any
) -> None:
    key = json.dumps(name)
    text = f"{{{key}: {json.dumps(first)}, {key}: {json.dumps(second)}}}"
    for step in reversed(path):
        text = f"[{'0,' * step}{text}]" if isinstance(step, int) else f"{{{json.dumps(step)}: {text}}}"
    with pytest.raises(RefusedMember) as refused:
        json_value(text)
    assert (refused.value.path, refused.value.code) == ((*path, name), "duplicate_member")


@pytest.mark.parametrize(
    ("text", "path"), [(r'{"a": ["x", "y\u0000"]}', ("a", 1)), (r'{"a": {"\u0000b": 1}}', ("a",)), (r'"\u0000"', ())]
)
def test_a_text_that_no_database_keeps_is_named(text: str, path: tuple[str | int, ...]) -> None:
    with pytest.raises(RefusedMember) as refused:
        json_value(text)
    assert (refused.value.path, refused.value.code) == (path, "nul_character")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_named(number: str) -> None:
    with pytest.raises(RefusedMember) as refused:
        json_value(f'{{"a": [1, {{"b": {number}}}]}}')
    assert (refused.value.path, refused.value.code) == (("a", 1, "b"), "finite_number")
