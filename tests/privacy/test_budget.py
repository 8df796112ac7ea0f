"""The in-memory filter refuses before anything is drawn; no run goes without naming its account."""

import inspect

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded, StateConflict
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.training import run


def test_refuses_the_charge_that_would_pass_the_limit():
    account = MemoryAccount(10)
    account.charge(0, "a", 6)
    with pytest.raises(BudgetExceeded):
        account.charge(1, "b", 5)
    assert account.charged_units == 6
    account.charge(1, "b", 4)
    assert account.charges == [(0, "a", 6), (1, "b", 4)]


def test_one_aggregate_per_step():
    account = MemoryAccount(10)
    account.store(0, np.arange(3))
    assert account.replay(0) is not None
    assert account.replay(1) is None
    with pytest.raises(StateConflict):
        account.store(0, np.arange(3))


def test_every_run_names_its_account():
    account = inspect.signature(run).parameters["account"]
    assert account.kind is inspect.Parameter.KEYWORD_ONLY
    assert account.default is inspect.Parameter.empty


def test_what_is_uncharged_keeps_no_books():
    account = UnchargedAccount()
    account.charge(0, "a", 10**30)
    account.store(0, np.arange(3))
    assert account.replay(0) is None
    assert not vars(account)
