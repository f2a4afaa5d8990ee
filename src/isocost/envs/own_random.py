"""Python's `random` module with numbers of one's own for a while: for classes of users that draw from it.

The functions of the module are replaced once by functions that ask a context variable which generator to use, and use
the module's own where none is set. Threads and tasks that run side by side so have numbers of their own, and no lock is
held while a class waits for something. `numpy.random` is not covered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_CURRENT: ContextVar[random.Random | None] = ContextVar("isocost_random", default=None)
_NAMES = [n for n in random.__all__ if n[0].islower() and callable(getattr(random.Random, n, None))]


def _asking(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        own = _CURRENT.get()
        return plain(*args, **named) if own is None else getattr(own, name)(*args, **named)

    function.__name__, function.__doc__ = name, plain.__doc__
    return function


def install() -> None:
    """Replace the functions, once. Modules that are imported later may also take them by name."""
    if getattr(random, "isocost_installed", False):
        return
    for name in _NAMES:
        setattr(random, name, _asking(name, getattr(random, name)))
    random.isocost_installed = True  # type: ignore[attr-defined]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """In this context, `random` draws from a generator of this seed."""
    token = _CURRENT.set(random.Random(seed))
    try:
        yield
    finally:
        _CURRENT.reset(token)
