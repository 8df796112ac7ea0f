"""What the description says holds for generated requests; `scripts/schemathesis` sends many more."""

from pathlib import Path

from fuzzing import fuzz, running


def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    with running(tmp_path) as target:
        sent = fuzz(target, 6)
        operations = [operation for methods in target.schema.raw_schema["paths"].values() for operation in methods]
    assert len(sent) == len(operations)
    assert sent.total() >= 250
