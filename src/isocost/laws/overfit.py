"""Over-fitting: held-out reward falls while training reward rises; and the epoch (pass over the problems) it starts at.

A collapse lowers training reward too and is not over-fitting. IsoCompute (arXiv 2603.12151) finds that over-fitting
lowers the n at which n* saturates; a plan should not exceed the epoch at which it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import hypot, sqrt

import numpy as np
from numpy import ndarray

from isocost.laws.curves import Curve, attempts_of

ERRORS = 3.0        # standard errors that held-out reward must have fallen by, from the best of several evaluations
LEAST = 0.01        # and at least so much: less is not worth a warning
SPREAD = 0.1        # assumed standard deviation over problems of a change in pass rate
CEILING = 0.9       # training reward from this value on need not rise


@dataclass(frozen=True)
class Overfit:
    """An arm whose held-out reward fell by `fall` after `C` rollouts, while its training reward rose by `rise`.

    `C` and `epoch` (passes over the training problems, None if unrecorded) are those of its best evaluation, after
    which it fell. `error` is the standard error of `fall`, `runs` the number of runs.
    """

    n: int
    B: int
    C: float
    epoch: float | None
    fall: float
    error: float
    rise: float
    runs: int


def describe(found: Sequence[Overfit]) -> str:
    """One sentence for the reader: from which pass over the problems on each arm over-fits, and by how much."""
    arms = ", ".join(f"n={x.n} from {f'{x.C:,.0f} rollouts' if x.epoch is None else f'pass {x.epoch:.1f}'} on "
                     f"({-x.fall:+.3f} held out, {x.rise:+.3f} in training)" for x in found)
    return f"over-fitting: {arms}; use more problems, or stop earlier"


def overfitting(curves: Sequence[Curve]) -> list[Overfit]:
    """The arms of these runs (one purpose, one learning-rate rule) that over-fit, by n; means over an arm's seeds.

    Held-out reward is the mean of both splits. From its best evaluation to the last it must fall by at least three
    standard errors and 0.01, and training reward must rise by two standard errors between the two, or be at least 0.9
    and not fall. Runs without recorded training reward are ignored.
    """
    known = [c for c in curves if c.train is not None]
    arms = sorted({(c.arm["n"], c.arm["B"]) for c in known})
    found = (_arm([c for c in known if (c.arm["n"], c.arm["B"]) == arm]) for arm in arms)
    return [x for x in found if x is not None]


def _arm(runs: Sequence[Curve]) -> Overfit | None:
    C = reduce(np.intersect1d, [c.C for c in runs])
    if len(C) < 3:
        return None
    held = np.array([_at(c, C, (c.select + c.audit) / 2) for c in runs])
    train = np.array([_at(c, C, c.train) for c in runs if c.train is not None])
    epochs = np.array([_at(c, C, c.epochs) for c in runs])
    best = int(held.mean(0).argmax())
    before = max(best, 1)        # the base has no training reward
    if before == len(C) - 1:
        return None
    fall = float(held[:, best].mean() - held[:, -1].mean())
    error = _error(runs, held[:, best] - held[:, -1])
    rise = float(train[:, -1].mean() - train[:, before].mean())
    noise = _noise(runs, C, before)
    rose = rise > 2 * noise or (train[:, -1].mean() >= CEILING and rise > -2 * noise)
    if not (fall > max(LEAST, ERRORS * error) and rose):
        return None
    epoch = float(epochs[:, best].mean())
    n, B = runs[0].arm["n"], runs[0].arm["B"]
    return Overfit(n, B, float(C[best]), epoch if np.isfinite(epoch) else None, fall, error, rise, len(runs))


def _at(curve: Curve, C: ndarray, values: ndarray) -> ndarray:
    return np.asarray(values)[np.searchsorted(curve.C, C)]


def _error(runs: Sequence[Curve], falls: ndarray) -> float:
    """Standard error of the mean fall: over problems, from sampling (twice), and over runs if there are several."""
    one = runs[0]
    own = SPREAD / sqrt(one.problems)
    sampling = 0.0
    if one.samples:
        draws = max(one.samples // attempts_of(one.metric), 1)
        sampling = 0.5 * sqrt(2 / (one.problems * draws * len(runs)))
    between = float(falls.std(ddof=1)) / sqrt(len(runs)) if len(runs) > 1 else 0.0
    return hypot(own, sampling, between)


def _noise(runs: Sequence[Curve], C: ndarray, before: int) -> float:
    """Standard error of the rise of training reward between two windows: a group has a standard deviation of at most
    1/2."""
    groups = [len(runs) * (C[k] - C[k - 1]) / runs[0].arm["n"] for k in (before, len(C) - 1)]
    return 0.5 * sqrt(sum(1 / max(g, 1) for g in groups))


def beyond(found: Sequence[Overfit], n: int, epochs: float | None) -> str | None:
    """A warning about a run at n with so many passes, by its own onset or the earliest; None if none is needed."""
    known = [x for x in found if x.epoch is not None]
    if epochs is None or not known:
        return None
    own = [x for x in known if x.n == n] or known
    first = min(own, key=lambda x: x.epoch or 0.0)
    if first.epoch is None or epochs <= first.epoch:
        return None
    return (f"over-fitting: {epochs:.1f} passes over the training problems, and in the pilot n={first.n} over-fitted "
            f"from {first.epoch:.1f} on; use more problems, or a smaller budget")
