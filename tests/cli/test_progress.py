"""Bars of a job's phases: none stands still while another moves."""

from datalens_service.cli.progress import PhaseBars


def test_a_phase_with_nothing_to_do_leaves_no_bar_behind() -> None:
    bars = PhaseBars()
    for phase, value, maximum in (("training", 3, 4), ("fitting", 0, 100), ("drawing", 5, 5), ("packaging", 1, 8)):
        bars.observe(phase, value, maximum)
    shown = {task.description: task for task in bars.tasks if task.visible}
    assert list(shown) == ["training", "drawing", "packaging"]
    # What ended early does not count on.
    assert shown["training"].stop_time is not None
    assert shown["packaging"].stop_time is None
