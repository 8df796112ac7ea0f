"""A request that cannot be right is answered with what is nearest to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.cli.failures import ExitCode

Run = Callable[..., Any]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records.npz"
    np.savez(path, images=np.zeros((40, 8, 8), dtype=np.uint8), labels=np.arange(40) % 2)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "momnets"], "there is no 'momnets'; did you mean moments"),
        (["--method", "moments", "--set", "subspace=3"], "did you mean subspace_share or subspace_dimensions?"),
        (["--method", "moments", "--set", "subspace_dimensions=abc"], "should be a valid integer, not 'abc'"),
        (["--method", "dp_sgd", "--set", "sampling=posson"], "'none', 'poisson' or 'partition', not 'posson'"),
        (["--method", "datalens", "--set", "warm_start.subspace_dim=4"], "did you mean subspace_dimensions or"),
        (
            ["--method", "datalens", "--set", "votes.topk=3"],
            "for example --set votes.name=clipped_rows; known are clipped_rows, count_sketch",
        ),
        (["--method", "moments", "--set", "evaluation.epoch=3"], "did you mean epochs?"),
        (["--method", "moments", "--set", "epochs=3"], "did you mean evaluation.epochs?"),
        (["--method", "moments", "--set", "clip_norm=big"], "for example --set clip_norm=0.35"),
        (["--method", "datalens", "--set", "votes.name=topagg", "--set", "votes.top_k=x"], "--set votes.top_k=200"),
        (["--method", "moments", "--set", "evaluation.epochs=2.5"], "for example --set evaluation.epochs="),
        (["--preset", "fst"], "choose auto, fast"),
    ],
)
def test_a_request_that_cannot_be_right_is_answered_with_what_is_nearest(
    datalens: Run, records: Path, arguments: list[str], says: str
) -> None:
    result = datalens("plan", "--data", records, "--epsilon", 1, *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert says in " ".join(result.stderr.split())
