"""The mutation gate: every planted bug is caught."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from datalens_service.mechanisms import Mechanism
from datalens_service.privacy import individual
from tests.torch_threads import torch_threads

from . import __main__ as command
from . import gate
from .detectors import DETECTORS
from .gate import PLANTS, caught, first_alarm
from .neutral import NEUTRAL, NeutralChange
from .plant import Plant
from .plants_noise import no_noise
from .plants_votes import sensitivity_is_root_k

HARMLESS = Plant("nothing at all", "R33", lambda patch: None)


@pytest.fixture(autouse=True)
def one_thread():
    with torch_threads(1):
        yield


@pytest.mark.parametrize("number", range(len(PLANTS)), ids=[plant.name for plant in PLANTS])
def test_a_planted_bug_is_caught(number: int):
    """In a process of its own, as by the command: what a bug leaves behind reaches no other."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        finding, _ = pool.submit(command.timed_run, number).result()
    assert finding is not None


@pytest.mark.parametrize("change", NEUTRAL, ids=lambda change: change.plant.name)
def test_a_change_that_costs_no_privacy_raises_no_alarm(change: NeutralChange, monkeypatch: pytest.MonkeyPatch):
    assert change.reason
    with monkeypatch.context() as patch:
        change.plant.apply(patch)
        for detector in change.detectors:
            detector(np.random.default_rng(0))
    individual._divergences_by_level.cache_clear()


def test_there_are_enough_plants_and_no_two_are_the_same():
    assert len(PLANTS) >= 224
    assert len({plant.name for plant in PLANTS}) == len({plant.apply for plant in PLANTS}) == len(PLANTS)


def test_what_is_likely_names_plants_and_detectors():
    """Only the order of detectors follows from it; a misspelt name would cost time in silence."""
    catches = gate.read_catches()
    assert set(catches) <= {plant.name for plant in PLANTS}
    assert set(catches.values()) <= {detector.__name__ for detector in DETECTORS}


def test_a_bug_that_the_likely_detector_misses_is_caught_by_another(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        no_noise.apply(patch)
        finding = first_alarm(0, likely="plans_price_whole_units")
    assert finding is not None
    assert finding.detector != "plans_price_whole_units"


def test_a_plant_that_no_longer_fits_the_product_is_an_error_and_not_a_catch():
    outdated = Plant("outdated", "R33", lambda patch: patch.setattr(Mechanism, "no_such_method", None))
    with pytest.raises(AttributeError, match="no_such_method"):
        caught(outdated)


@pytest.mark.parametrize(
    ("plants", "slipped", "status"),
    [((sensitivity_is_root_k,), [], 0), ((HARMLESS,), ["nothing at all"], 1)],
)
def test_the_command_counts(
    plants: tuple[Plant, ...],
    slipped: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    # Those of prices and votes are enough to count by, and take seconds.
    monkeypatch.setattr(
        gate, "DETECTORS", [detector for detector in DETECTORS if detector.__module__.endswith(("price", "votes"))]
    )
    monkeypatch.setattr(command, "PLANTS", plants)
    monkeypatch.setattr(command, "CLEAN_RUNS", 1)
    monkeypatch.setattr("sys.argv", ["privacy-gate", "--json"])
    assert command.main() == status
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["planted"], summary["caught"], summary["slipped"]) == (1, 1 - len(slipped), slipped)
    assert (summary["clean_runs"], summary["false_alarms"]) == (1, 0)
    assert plants[0].name in printed.err


def test_a_false_alarm_fails_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A product that is itself broken must not pass because every plant is caught."""
    no_noise.apply(monkeypatch)
    monkeypatch.setattr(command, "PLANTS", ())
    monkeypatch.setattr(command, "CLEAN_RUNS", 1)
    monkeypatch.setattr("sys.argv", ["privacy-gate"])
    assert command.main() == 1
    assert "FALSE ALARM" in capsys.readouterr().out
