"""Which errors are retried, after which delay, and until when."""

from types import SimpleNamespace

import pytest

from datalens_service.client import ClientError, ServiceUnreachable, retry_policy
from datalens_service.client.retry_policy import RetryPolicy

UNREACHABLE = ServiceUnreachable("no response")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the policy's clock alone, as its only element: event loops of servers in this process have theirs."""
    seconds = [0.0]
    monkeypatch.setattr(retry_policy, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def test_delays_double_up_to_five_seconds(clock: list[float]):
    policy = RetryPolicy(initial_delay=1)
    assert [policy.choose_delay(UNREACHABLE) for _ in range(5)] == [1, 2, 4, 5, 5]


def test_the_deadline_counts_from_the_last_success(clock: list[float]):
    policy = RetryPolicy(timeout=10)
    clock[0] = 9
    policy.reset()
    clock[0] = 19
    assert policy.choose_delay(UNREACHABLE) == 0.25
    clock[0] = 19.5
    with pytest.raises(ServiceUnreachable):
        policy.choose_delay(UNREACHABLE)


@pytest.mark.parametrize("slug", ["upload-offset-mismatch", "upload-locked", "checksum-mismatch", "store-unavailable"])
def test_a_problem_that_may_pass_is_retried(clock: list[float], slug: str):
    assert RetryPolicy().choose_delay(ClientError(slug, "", "")) == 0.25


def test_another_problem_is_raised_at_once(clock: list[float]):
    with pytest.raises(ClientError, match="Ask for less"):
        RetryPolicy().choose_delay(ClientError("privacy-budget-exceeded", "", "Ask for less."))
