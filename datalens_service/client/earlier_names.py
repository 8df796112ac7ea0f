"""Earlier names of arguments."""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def accept_earlier_names(**names: str) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Let a function take arguments by their earlier names, with a warning.

    Args:
        names: By each earlier name, that of today.
    """

    def decorate(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
            for earlier in names.keys() & kwargs.keys():
                name = names[earlier]
                if name in kwargs:
                    raise TypeError(f"{earlier} is the earlier name of {name}: name it once.")
                warnings.warn(f"{earlier} is called {name}.", DeprecationWarning, stacklevel=2)
                kwargs[name] = kwargs.pop(earlier)
            return function(*args, **kwargs)

        return call

    return decorate
