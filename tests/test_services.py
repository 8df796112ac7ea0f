"""Where services are required, a missing one fails the tests that need it."""

from collections.abc import Callable
from typing import NoReturn

import pytest

DoWithout = Callable[[str], NoReturn]


def test_a_missing_server_skips_a_test(do_without: DoWithout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATALENS_REQUIRE_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        do_without("the server is not installed")


def test_a_missing_server_that_is_required_fails_a_test(do_without: DoWithout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_REQUIRE_SERVICES", "1")
    with pytest.raises(pytest.fail.Exception, match="not installed, and DATALENS_REQUIRE_SERVICES is set"):
        do_without("the server is not installed")
