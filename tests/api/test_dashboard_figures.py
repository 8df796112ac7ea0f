"""What pages say about numbers: rounded towards privacy, adding up where they are drawn."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from datalens_service.api.pages.views import facts, formatting, journal
from datalens_service.base.progress import Phase
from datalens_service.privacy.accounting import Charge, epsilon_of_ledger_units, limit_units, stated_epsilon
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.jobs.jobs import Job, JobState, Progress
from datalens_service.store.ledger.journal_pages import JournalLine, JournalSlice

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DELTA = 1e-5


def entry(seq: int, kind: str, units: int, job_id: str | None = None, label: str = "", slack: int = 0) -> JournalLine:
    return JournalLine(seq, EntryKind(kind), job_id, label, units, slack, NOW, f"{seq:064d}")


def job(state: JobState, phase: str | None = None, value: int = 0, maximum: int = 0, **more: Any) -> Job:
    needed = [field.name for field in dataclasses.fields(Job) if field.default is dataclasses.MISSING]
    started_at = None if state is JobState.QUEUED else NOW
    told = {"state": state, "progress": Progress(phase, value, maximum), "spec": {}, "started_at": started_at}
    return Job(**{**dict.fromkeys(needed), **told, **more})  # type: ignore[arg-type]


def test_sizes_and_spans_have_units() -> None:
    sizes = [formatting.size(n) for n in (0, 999, 1000, 162_400, 999_900, 4 * 2**30)]
    assert sizes == ["0 bytes", "999 bytes", "1 kB", "162 kB", "1 MB", "4.29 GB"]
    assert [formatting.duration(s) for s in (0.2, 59, 61, 3599, 3601)] == ["1 s", "59 s", "2 min", "60 min", "2 h"]


def test_equal_releases_are_one_row_and_the_total_runs() -> None:
    limit = limit_units(10.0, DELTA)
    assert table([], spent=0) == journal.Table((), None)
    entries = [entry(1, "open", limit), entry(2, "reserve", 500, "a")]
    entries += [entry(seq, "charge", 100, "a", "votes") for seq in (3, 4, 5)]
    entries += [entry(6, "charge", 50, "a", "means"), entry(7, "settle", 150, "a"), entry(8, "settle", 0, "b")]
    rows = table(entries, spent=350).rows
    assert [(row.first, row.last) for row in rows] == [(8, 8), (7, 7), (6, 6), (3, 5), (2, 2), (1, 1)]
    assert [row.count for row in rows] == [1, 1, 1, 3, 1, 1]
    assert rows[3].share == pytest.approx(100 * 300 / limit)
    assert rows[0].epsilon_after >= epsilon_of_ledger_units(350, DELTA)
    assert rows[3].epsilon_after >= epsilon_of_ledger_units(300, DELTA)
    assert rows[-1].epsilon_after == 0
    assert rows[0].meaning != rows[1].meaning


@pytest.mark.parametrize("portion", [7, 60, 1000])
def test_pages_of_a_journal_join_without_a_gap_and_the_total_runs_through_them(portion: int) -> None:
    """Two jobs that take turns, then one whose releases are all alike."""
    entries = [entry(1, "open", limit_units(10.0, DELTA))]
    entries += [entry(seq, "charge", 10, "ab"[seq % 2], "votes") for seq in range(2, 202)]
    entries += [entry(seq, "charge", 10, "a", "means") for seq in range(202, 502)]
    rows, before, pages = [], len(entries) + 1, 0
    while before is not None:
        older = entries[: before - 1]
        page = table(older[-portion:], spent=10 * (len(older) - 1))
        rows, before, pages = [*rows, *page.rows], page.older, pages + 1
        assert len(page.rows) <= 50
    assert pages >= 201 // 50
    assert [row.last for row in rows[1:]] == [row.first - 1 for row in rows[:-1]]
    assert (rows[0].last, rows[-1].first) == (len(entries), 1)
    assert sum(row.count for row in rows) == len(entries)
    for row in rows[:-1]:
        assert row.epsilon_after == pytest.approx(epsilon_of_ledger_units(10 * (row.last - 1), DELTA), abs=1e-4)


def test_a_job_of_more_releases_than_a_page_reads_is_on_the_first_page() -> None:
    entries = [entry(seq, "charge", 10, "a", "votes") for seq in range(2, 102)] + [entry(102, "settle", 5, "a")]
    page = table(entries, spent=1000)
    assert [(row.first, row.last, row.count) for row in page.rows] == [(102, 102, 1), (2, 101, 100)]
    assert page.older == 2


def test_spent_epsilon_of_a_page_has_the_slack_of_sampled_batches_in_it() -> None:
    entries = [entry(1, "open", limit_units(10.0, DELTA))]
    entries += [entry(seq, "charge", 100, "a", f"batch {seq}", slack=10**11) for seq in (2, 3)]
    after = [row.epsilon_after for row in table(entries, spent=200, slack=2 * 10**11).rows]
    charges = [Charge(200, 2 * 10**11), Charge(100, 10**11), Charge(0)]
    assert after == [stated_epsilon(charge, DELTA) for charge in charges]


def table(entries: Sequence[JournalLine], spent: int, slack: int = 0) -> journal.Table:
    """Of the oldest entries, or of some behind them."""
    return journal.build_table(JournalSlice(entries[::-1], Charge(spent, slack), limit_units(10.0, DELTA)), DELTA)


def test_shares_never_leave_the_gauge() -> None:
    over = facts.Shares(spent=60.0, reserved=30.0, planned=10.0)
    assert over.left == 0
    assert facts.Shares(spent=99.99, reserved=0.02).left == 0


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(JobState.QUEUED), ["current", *["todo"] * 6]),
        (job(JobState.RUNNING), ["done", "current", *["todo"] * 5]),
        (job(JobState.RUNNING, "training", 1, 4), ["done", "current", *["todo"] * 5]),
        (job(JobState.RUNNING, "packaging", 1, 4), [*["done"] * 4, "current", "todo", "todo"]),
        (job(JobState.RUNNING, "evaluating", 1, 4), [*["done"] * 5, "current", "todo"]),
        (job(JobState.PAUSED, "training", 1, 4), ["done", "paused", *["todo"] * 5]),
        (job(JobState.PAUSED, started_at=None), ["paused", *["todo"] * 6]),
        (job(JobState.FAILED, "packaging", 1, 4), [*["done"] * 4, "stopped", "todo", "todo"]),
        (job(JobState.CANCELLED, started_at=None), ["stopped", *["todo"] * 6]),
        (job(JobState.SUCCEEDED, "reporting", 4, 4), ["done"] * 7),
        (job(JobState.SUCCEEDED, "evaluating", 1, 4, cancel_requested=True), [*["done"] * 5, "stopped", "todo"]),
    ],
)
def test_a_job_is_in_one_stage(found: Job, expected: list[str]) -> None:
    assert [stage.state for stage in facts.job_phases(found)] == expected


@pytest.mark.parametrize("phase", list(Phase)[:-1])
def test_a_stage_that_goes_on_is_never_whole(phase: Phase) -> None:
    stages = facts.job_phases(job(JobState.RUNNING, phase, 4, 4))
    assert [stage.percent for stage in stages if stage.state == "current"] == [99.0]


def test_a_job_that_measures_nothing_has_no_stage_for_it() -> None:
    found = job(JobState.RUNNING, "packaging", 1, 4, spec={"evaluation": {"enabled": False}})
    titles = [stage.title for stage in facts.job_phases(found)]
    assert titles == ["Waiting", "Training", "Fitting", "Drawing", "Packing"]
