"""The audit of a strategy: the sealed forecast against the test split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy import ndarray

from isocost.disk.shape import Plain
from isocost.planner.audit import EXIT, IntervalScore, judged, scored
from isocost.planner.test_time.choice import paired
from isocost.planner.test_time.estimates import Measured, label, measure, orders
from isocost.planner.test_time.pool import Parts
from isocost.planner.test_time.prescribe import KIND, BandStrategy, StrategyForecast
from isocost.runs.schema import VERSION
from isocost.stats.intervals import Interval


@dataclass(frozen=True)
class Against:
    """The prescription minus another strategy, paired by problem. `better`: "prescribed", "other" or "cannot tell"."""

    name: str
    accuracy: float
    difference: Interval
    better: str


@dataclass(frozen=True)
class StrategyOutcome:
    """One forecast against its outcome; `scores` has that of the forecast first, then the naive ones."""

    asked: str
    label: str
    verdict: str
    reason: str
    outcome: float | None
    forecast: Interval
    against: tuple[Against, ...]
    scores: tuple[IntervalScore, ...]
    seal: str


@dataclass(frozen=True)
class StrategyAudit(Plain):
    """The outcomes of a study's forecasts, on the same problems. The verdict is that of the last one planned."""

    outcomes: tuple[StrategyOutcome, ...]
    problems: int

    HEAD: ClassVar = {"schema": VERSION, "kind": KIND}
    SHOWN: ClassVar = ("verdict", "exit_code")

    @property
    def verdict(self) -> str:
        return self.outcomes[-1].verdict

    @property
    def exit_code(self) -> int:
        """Hit 0, miss 3, cannot tell and uninformative 4."""
        return EXIT[self.verdict]


def outcome(
    forecast: StrategyForecast, parts: Parts, seed: int, changed: Sequence[str] = (), live: Sequence[Measured] = (),
) -> StrategyOutcome:
    """A forecast against the test split. `changed` is what has changed since the seal; `live` are strategies
    that were run on these problems."""
    pool, i = parts.audit, forecast.interval
    ran = {m.label: m.accuracy for m in live}
    largest = max((b.size for b in forecast.each if label(b.strategy, b.size, b.arm) not in ran),
                  default=1)
    if changed or largest > pool.samples:
        why = f"changed since it was sealed: {', '.join(changed)}" if changed else (
            f"{forecast.label} needs {largest} samples of each problem that reports, and there are {pool.samples}")
        return StrategyOutcome(forecast.asked, forecast.label, "cannot tell", why, None, i, (), (), forecast.seal)
    order, first = orders(pool, seed), parts.probe if len(forecast.each) > 1 else 0

    def accuracy(b: BandStrategy) -> ndarray:
        there = [test for _, test in parts.arms[b.arm]] if b.arm else [pool]
        if b.size == 1:
            return np.asarray(np.mean([its.right.mean(1) for its in there], axis=0))
        known = ran.get(label(b.strategy, b.size, b.arm))
        return np.asarray(np.mean([measure(its, b.strategy, b.size, order).accuracy for its in there], axis=0)) if (
            known is None) else known

    def begun(b: BandStrategy) -> ndarray:
        whole = parts.audit_all
        return measure(whole, b.strategy, b.size, orders(whole, seed, first), first).accuracy

    each = [(begun if first else accuracy)(b) for b in forecast.each]
    mine = each[0] if len(each) == 1 else np.array(each)[parts.audit_band, np.arange(len(pool.ids))]
    y = float(mine.mean())
    verdict, reason = judged(i, forecast.naive, y)
    best, all_ = forecast.best, len(pool.ids)
    others = {"one sample": accuracy(BandStrategy("all", "one", 1, all_))}
    if forecast.vote > 1:
        vote = BandStrategy("all", "vote", forecast.vote, all_)
        others[f"majority of {forecast.vote}, equal cost"] = accuracy(vote)
    if best.size > 1 and (best.size <= pool.samples or label(best.strategy, best.size, best.arm) in ran):
        others[f"{best}, the best single strategy"] = accuracy(best)
    others |= {f"{b}{'' if b.arm else ' of the base'}": accuracy(b) for b in forecast.others}
    return StrategyOutcome(
        forecast.asked, forecast.label, verdict, reason, y, i,
        tuple(_against(name, mine, other) for name, other in others.items() if not np.array_equal(mine, other)),
        scored(i, forecast.naive, y), forecast.seal,
    )


def _against(name: str, mine: ndarray, other: ndarray) -> Against:
    d = paired(mine - other)
    better = "prescribed" if d.low > 0 else "other" if d.high < 0 else "cannot tell"
    return Against(name, float(other.mean()), d, better)
