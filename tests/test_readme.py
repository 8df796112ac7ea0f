"""README and the pages of measurements say what the results say."""

import runpy

import pytest

from repository import ROOT


@pytest.mark.parametrize("page", ["benchmarks.table", "benchmarks.ablation_page", "benchmarks.direction_page"])
def test_a_page_is_made_from_the_results(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", [page, "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(page, run_name="__main__")
    assert not ended.value.code
