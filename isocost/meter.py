"""Whoever computes holds the meter, so no method can forget what it spent.

Whatever is decoded, scored or trained inside `on(account)`, however deep and whether or not anyone keeps the
result, is charged to that account: abandoned rollouts, best-of-n's losers, the side rollouts of a value estimate.
Accounts: "train" is the laws' C; "evaluation", "probe" and "lost" are never in C and always in the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from isocost.types import Cost

TRAIN, EVALUATION, PROBE, LOST = "train", "evaluation", "probe", "lost"


@dataclass
class Tab:
    """What one stretch of work has cost so far, however deep: a group knows what its abandoned rollouts cost."""

    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Payer:
    """Who pays for a computation: an account, and the tab it is also written on. Captured when work is asked for."""

    account: str = TRAIN
    tab: Tab | None = None


_TRAINING = Payer()
_payer: ContextVar[Payer] = ContextVar("payer", default=_TRAINING)


@contextmanager
def on(account: str) -> Iterator[None]:
    """Charge everything inside (child tasks too) to this account."""
    token = _payer.set(replace(_payer.get(), account=account))
    try:
        yield
    finally:
        _payer.reset(token)


@contextmanager
def tab() -> Iterator[Tab]:
    """Write everything charged inside (child tasks too) on one tab as well."""
    fresh = Tab()
    token = _payer.set(replace(_payer.get(), tab=fresh))
    try:
        yield fresh
    finally:
        _payer.reset(token)


def payer() -> Payer:
    """The current payer, for work that is done later in another task."""
    return _payer.get()


class Meter:
    """Running totals per account: what was asked for (`logical`) and what the machine did (`physical`)."""

    def __init__(self) -> None:
        self.logical: dict[str, Cost] = {}
        self.physical: dict[str, Cost] = {}
        self.observer: Callable[[str, Cost], None] | None = None  # told of every charge as it is made

    def charge(self, cost: Cost, physical: Cost | None = None, to: Payer | None = None) -> None:
        """Add to the payer's account, or to one captured before. No `physical`: it did what was asked."""
        to = _payer.get() if to is None else to
        self.logical[to.account] = self.logical.get(to.account, Cost()) + cost
        self.physical[to.account] = self.physical.get(to.account, Cost()) + (
            cost if physical is None else physical
        )
        if to.tab is not None:
            to.tab.cost += cost
        if self.observer is not None:
            self.observer(to.account, cost)

    def forget(self, account: str) -> None:
        self.logical.pop(account, None)
        self.physical.pop(account, None)

    def of(self, account: str = TRAIN) -> Cost:
        return self.logical.get(account, Cost())

    @property
    def total(self) -> Cost:
        """The bill: every account."""
        return sum(self.logical.values(), Cost())

    def state(self) -> dict[str, dict[str, dict[str, float]]]:
        return {
            side: {k: v.data() for k, v in getattr(self, side).items()} for side in ("logical", "physical")
        }

    def restore(self, state: dict[str, dict[str, dict[str, float]]]) -> None:
        self.logical = {k: Cost.of(v) for k, v in state["logical"].items()}
        self.physical = {k: Cost.of(v) for k, v in state["physical"].items()}
