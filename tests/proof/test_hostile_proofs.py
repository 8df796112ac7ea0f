"""Documents from anybody: whatever they hold, the answer is a verdict or a refusal in words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datalens_service.base.errors import InvalidInput
from datalens_service.base.signatures import SigningKey
from datalens_service.proof.release_verification import verify_path
from datalens_service.report.build import releasable_view
from example_proof import example_account_proof, example_proof
from tests.evaluation.conftest import report

KEY = SigningKey(b"of a forger")
Document = dict[str, Any]
DOCUMENTS: dict[str, Callable[[], Document]] = {
    "proof": example_proof,
    "account": lambda: example_account_proof().model_dump(mode="json"),
    "report": lambda: releasable_view(report()),
}


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


BYTES = {
    "deep nesting": nested(10**5).encode(),
    "deep nesting in a member": b'{"format": "datalens-bundle/2", "card": ' + nested(10**5).encode() + b"}",
    "deep nesting in a report": b'{"format": "datalens-report/3", "x": ' + nested(10**5).encode() + b"}",
    "objects in objects": b'{"format": "datalens-report/3", "x": ' + b'{"x": ' * 10**5 + b"1" + b"}" * 10**5 + b"}",
    "deep nesting of a signature": b'{"format": "datalens-bundle/2", "signature": ' + nested(10**5).encode() + b"}",
    "a huge number": b'{"format": "datalens-bundle/2", "job_id": ' + b"9" * 10**5 + b"}",
    "a huge exponent": b'{"format": "datalens-bundle/2", "job_id": 1e99999}',
    "no number": b'{"format": "datalens-report/3", "date": NaN}',
    "infinity": b'{"format": "datalens-bundle/2", "job_id": -Infinity}',
    "a name twice": b'{"format": "datalens-card/1", "format": "datalens-bundle/2"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": json.dumps(example_proof()).encode("utf-16"),
    "no UTF-8": b'{"format": "datalens-bundle/2", "job_id": "\xff"}',
    "half a pair": b'{"format": "datalens-report/3", "contact": "\\ud800"}',
    "NUL": b'{"format": "datalens-bundle/2", "job_id": "\\u0000"}',
    "a huge text": b'{"format": "datalens-bundle/2", "job_id": "' + b"x" * 2**22 + b'"}',
    "no object": b"[1]",
    "nothing": b"",
}


def answers(path: Path, content: bytes) -> bool:
    """Whether it holds; any other error than a refusal ends the test."""
    path.write_bytes(content)
    holds = []
    for key in (None, KEY.public):
        try:
            verdict = verify_path(path, key)
        except InvalidInput:
            continue
        holds.append(verdict.holds)
        assert json.loads(verdict.model_dump_json())["holds"] == verdict.holds
    return any(holds)


@pytest.mark.parametrize("name", BYTES)
def test_what_is_no_proof_is_refused_in_words(tmp_path: Path, name: str) -> None:
    assert not answers(tmp_path / "given.json", BYTES[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_hold_as_they_are(tmp_path: Path, name: str) -> None:
    assert answers(tmp_path / "given.json", json.dumps(KEY.sign(DOCUMENTS[name]())).encode())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all members, and of items of lists."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inside for place in places(item, (*path, name)))]


PLACES = {name: places(make())[1:] for name, make in DOCUMENTS.items()}
_numbers = st.one_of(
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -1, 1, 2**53, 2**63, 2**64, 10**4000, 1e308, -1e308, 5e-324, -0.0]),
)
_leaves = st.one_of(st.none(), st.booleans(), _numbers, st.text(max_size=20))
_values = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from([*DOCUMENTS]), changes=st.integers(1, 3), signed=st.booleans())
def test_whatever_stands_in_a_document_is_answered(
    tmp_path: Path, data: st.DataObject, name: str, changes: int, signed: bool
) -> None:
    """The forger signs what can be signed, so that every line is reached."""
    document = DOCUMENTS[name]()
    for _ in range(changes):
        *path, last = data.draw(st.sampled_from(PLACES[name]))
        holder: Any = document
        try:
            for step in path:
                holder = holder[step]
            holder[last]
        except (KeyError, IndexError, TypeError):
            continue
        if data.draw(st.booleans()):
            holder[last] = data.draw(_values)
        elif isinstance(holder, dict):
            del holder[last]
    content = json.dumps(KEY.sign(document) if signed else document).encode()
    answers(tmp_path / "given.json", content)
