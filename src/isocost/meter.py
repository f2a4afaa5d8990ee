"""Every computation charges the meter, so that no cost of a method is left out.

Everything decoded, scored or trained inside `on(account)`, at any depth and whether or not the result is used, is
charged to that account: cancelled rollouts, the losers of best-of-n, the side rollouts of a value estimate. Accounts:
"train" is the C of the laws; "evaluation", "probe", "check" (of the answer key), "lost", "answers" (what was served)
and "model NAME" (a second model that writes part of an answer) are never part of C and always part of the bill.

One rollout is one attempt that a `play` or a `schedule` begins, from the prompt or from a part of another attempt,
whether or not it is returned. An attempt that goes on where it stopped is the same rollout, and a copy is none. An
engine says how many continuations it started, and does not know what they are. Those asked for inside `begins(True)`
are rollouts: inside `play` and `schedule` all are, except where `parts.play` goes on with an attempt. What a judge, a
reward or an expert asks of the policy's engine is a side call, which costs tokens and no rollout; inside a `play` or
`schedule` it is asked for inside `begins(False)`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from isocost.types import Cost

TRAIN, EVALUATION, PROBE, CHECK, LOST, ANSWERS = "train", "evaluation", "probe", "check", "lost", "answers"
MODEL = "model "        # and its name
RULE = 1        # grows when what is charged changes: records have it, and one begun under another is not continued
SAMPLE, SCORE, LEARN = "sample", "score", "learn"  # what seconds are spent on


@dataclass
class Tab:
    """The cost of one stretch of work so far, at any depth, such as all rollouts of a group."""

    cost: Cost = field(default_factory=Cost)
    around: Tab | None = None  # the tab of the enclosing work
    unchosen: int = 0           # of the rollouts: those that another one of their answer was chosen over


@dataclass(frozen=True)
class Payer:
    """Where a computation is charged: an account, and a tab. Captured when the work is requested."""

    account: str = TRAIN
    tab: Tab | None = None
    begins: bool = False        # whether a continuation that an engine starts for it is a rollout that begins


_TRAINING, _NOTHING = Payer(), Cost()
BY_HAND = (
    "rollouts that are charged by hand are not counted, because they are charged where they begin: leave out "
    "`Cost(rollouts=...)`"
)
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
    """Add everything charged inside (child tasks too) to one tab as well, and to the tabs around it."""
    fresh = Tab(around=_payer.get().tab)
    token = _payer.set(replace(_payer.get(), tab=fresh))
    try:
        yield fresh
    finally:
        _payer.reset(token)


@contextmanager
def begins(rollouts: bool) -> Iterator[None]:
    """Whether each continuation that an engine starts inside (child tasks too) is a rollout that begins."""
    token = _payer.set(replace(_payer.get(), begins=rollouts))
    try:
        yield
    finally:
        _payer.reset(token)


def unchosen(count: int) -> None:
    """Count rollouts that began here and are not returned, because another one of their answer was chosen."""
    tab = _payer.get().tab
    while tab is not None:
        tab.unchosen += count
        tab = tab.around


def payer() -> Payer:
    """The current payer, for work that is done later in another task."""
    return _payer.get()


def work_of(cost: Cost) -> str:
    """The kind of work that a charge's seconds were spent on, derived from its other counts.

    Training, and forward passes for training (a reference, old log-probs), are LEARN; other reading or writing of
    tokens is SAMPLE; a charge without tokens is SCORE: verifiers and environments.
    """
    if cost.train or cost.score or cost.updates:
        return LEARN
    return SAMPLE if cost.rollouts or cost.prefill or cost.decode else SCORE


class Meter:
    """Running totals per account: what was requested (`logical`) and what the machine did (`physical`).

    `busy` splits each account's seconds by the kind of work: account -> work -> seconds.
    """

    def __init__(self) -> None:
        self.logical: dict[str, Cost] = {}
        self.physical: dict[str, Cost] = {}
        self.busy: dict[str, dict[str, float]] = {}
        self.charged = 0.0      # seconds of all charges of this process, of every account
        self.observer: Callable[[str, Cost], None] | None = None  # called with every charge
        self._one = threading.Lock()    # the engine and the learner may charge at the same time

    def charge(self, cost: Cost, physical: Cost | None = None, to: Payer | None = None, started: int = 0) -> None:
        """Add to the payer's account, or to one captured before. Without `physical` it equals `cost`.

        `started` is how many continuations an engine started: rollouts if they begin. Rollouts are counted in no other
        way: those of `cost` are not, with a FutureWarning.
        """
        to = _payer.get() if to is None else to
        if cost.rollouts:
            warnings.warn(BY_HAND, FutureWarning, stacklevel=2)
        if cost.rollouts or started:
            rollouts = started if to.begins else 0
            cost, physical = cost._replace(rollouts=rollouts), physical and physical._replace(rollouts=rollouts)
        with self._one:
            account = to.account
            for side, more in ((self.logical, cost), (self.physical, cost if physical is None else physical)):
                before = side.get(account)
                side[account] = more if before is None else before + more
            if cost.seconds:
                busy, work = self.busy.setdefault(account, {}), work_of(cost)
                busy[work] = busy.get(work, 0.0) + cost.seconds
                self.charged += cost.seconds
            tab = to.tab
            while tab is not None:
                tab.cost += cost
                tab = tab.around
            if self.observer is not None:
                self.observer(to.account, cost)

    def forget(self, account: str) -> None:
        self.logical.pop(account, None)
        self.physical.pop(account, None)
        self.busy.pop(account, None)

    def of(self, account: str = TRAIN) -> Cost:
        return self.logical.get(account, _NOTHING)

    def seconds(self, work: str, account: str = TRAIN) -> float:
        """An account's busy seconds of one kind of work."""
        return self.busy.get(account, {}).get(work, 0.0)

    @property
    def total(self) -> Cost:
        """The bill: every account."""
        return sum(self.logical.values(), Cost())

    def state(self) -> dict[str, dict[str, dict[str, float]]]:
        costs = {side: {k: v.data() for k, v in getattr(self, side).items()} for side in ("logical", "physical")}
        return {**costs, "busy": {a: {w: round(s, 6) for w, s in each.items()} for a, each in self.busy.items()}}

    def restore(self, state: dict[str, dict[str, dict[str, float]]]) -> None:
        """Continue from these totals, with what this process was charged for its own checks."""
        own, busy = [side.get(CHECK, Cost()) for side in (self.logical, self.physical)], self.busy.get(CHECK, {})
        self.logical = {k: Cost.of(v) for k, v in state["logical"].items()}
        self.physical = {k: Cost.of(v) for k, v in state["physical"].items()}
        # Checkpoints of earlier versions did not split seconds: the split then starts where the run is resumed.
        self.busy = {k: dict(v) for k, v in state.get("busy", {}).items()}
        for side, cost in zip((self.logical, self.physical), own, strict=True):
            if cost != Cost():
                side[CHECK] = side.get(CHECK, Cost()) + cost
        for work, seconds in busy.items():
            before = self.busy.setdefault(CHECK, {})
            before[work] = before.get(work, 0.0) + seconds
