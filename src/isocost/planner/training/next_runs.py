"""The runs to add to a pilot, ranked by the expected reduction of uncertainty per rollout.

The law's draws are joint curves of all n. Each is taken as the truth in turn: the outcome of a candidate's runs is
sampled from it, every draw is weighted by its likelihood given that outcome, and n is chosen again (a preposterior
analysis; Raiffa and Schlaifer, 1961). The expected loss after that, averaged over the truths, is the uncertainty that
the runs would leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.law import DEAREST, SELECT, Law
from isocost.stats.intervals import spread
from isocost.stats.posterior import correlation, covariance, dearer, thinned

Aim = Literal["choice", "reward"]
FURTHER = (2.0, 4.0)        # how far runs may be continued, in units of their length
LOOKS = 3                   # evaluations of a new or continued run that are used
NEGLIGIBLE = 0.01           # expected extra compute, or standard deviation of reward, below which no run is proposed


@dataclass(frozen=True, slots=True)
class NextRun(Plain):
    """Runs to add at one n: `new` seeds of C rollouts each, or, if `new` is 0, the existing runs continued to C.

    `rollouts` is their cost; `aim` is the uncertainty that they reduce, `now` its size and `after` the expected size
    with them: the expected extra compute of the choice, as a share, or the standard deviation of the reward.
    """

    n: int
    new: int
    C: float
    rollouts: float
    aim: Aim
    now: float
    after: float

    @property
    def per_rollout(self) -> float:
        """The expected reduction per rollout, by which candidates are ranked."""
        return (self.now - self.after) / self.rollouts

    @property
    def text(self) -> str:
        """One line for the reader."""
        what = f"{self.new} new seed{'s' * (self.new > 1)} of n={self.n}" if self.new else f"n={self.n} continued"
        named = "the choice's expected extra compute" if self.aim == "choice" else "the reward's standard deviation"
        shown = f"{self.now:.1%} to {self.after:.1%}" if self.aim == "choice" else f"{self.now:.3f} to {self.after:.3f}"
        return f"{what} to {self.C:,.0f} rollouts ({self.rollouts:,.0f} in all): {named} from {shown}"

    @property
    def option(self) -> str:
        """The option of `isocost pilot` that adds these runs."""
        return f"--seeds {self.n}={self.new}" if self.new else f"--longer {self.n}={self.C:.0f}"


def next_runs(law: Law, C: float, *, top: int = 3, most: float = np.inf, truths: int = 100) -> tuple[NextRun, ...]:
    """The best runs to add before C rollouts are spent on one n, by expected reduction of uncertainty per rollout.

    The aim is the choice of n if its expected extra compute is above 1 %, else the reward of the chosen n. `most` is
    the largest number of rollouts to spend. Empty if the law has no curve, or if the uncertainty is negligible. Raises
    UserError for a C that is not above 0.
    """
    if not C > 0:
        raise UserError(f"expected C above 0, got {C:g}")
    if not law.arms:
        return ()
    drawn, second = (np.array([getattr(arm.fits[SELECT], k) for arm in law.arms]) for k in ("draws", "second"))
    loss = dearer(drawn, second, law.tails, law.R0[SELECT], C, DEAREST)
    chosen = int(loss.mean(1).argmin())
    reward = law.paths(law.ns[chosen], np.array([C]), SELECT)[:, 0]
    now = float(loss[chosen].mean())
    aim: Aim = "choice" if now > NEGLIGIBLE else "reward"
    if aim == "reward":
        now = float(reward.std())
    if now < NEGLIGIBLE:
        return ()
    out = []
    for n, new, end, rollouts in candidates(law):
        if rollouts > most:
            continue
        weights = _weights(law, n, new, end, truths)
        after = (weights @ loss.T).min(1).mean() if aim == "choice" else _left(weights, reward)
        out.append(NextRun(n, new, end, rollouts, aim, now, min(float(after), now)))
    out.sort(key=lambda r: (-r.per_rollout, r.rollouts, r.n))
    return tuple(out[:top])


def candidates(law: Law) -> list[tuple[int, int, float, float]]:
    """(n, new seeds, C, rollouts): one or three more seeds of the arm's length, or its runs 2 or 4 times as long."""
    out = []
    for arm in law.arms:
        end, runs = float(arm.C[-1]), len(arm.runs)
        out += [(arm.n, new, end, new * end) for new in (1, 3)]
        out += [(arm.n, 0, times * end, (times - 1) * end * runs) for times in FURTHER]
    return out


def _weights(law: Law, n: int, new: int, end: float, truths: int) -> ndarray:
    """The weights on draws (truths, D) after a candidate's runs, for `truths` of the draws as the truth."""
    arm = law.arm(n)
    start = float(arm.C[-1]) if new == 0 else end / 8
    C = np.geomspace(start, end, LOOKS + (new == 0))[int(new == 0):]
    paths = law.paths(n, C, SELECT)
    at = thinned(law.noise.C)
    rho = correlation(law.noise.C[at], law.noise.residuals[SELECT][:, at])
    mean = paths.mean(0)
    sd = law.noise.sd(np.minimum(C, law.noise.C[-1]), mean, SELECT) / np.sqrt(new or len(arm.runs))
    half = np.linalg.cholesky(np.linalg.inv(covariance(C, np.maximum(sd, 1e-4 * spread(mean)), rho)))
    whitened = paths @ half
    rng = generator(law.seed, Purpose.BOOTSTRAP, n, new, round(end))
    true = np.linspace(0, len(paths) - 1, min(truths, len(paths))).astype(int)
    outcomes = whitened[true] + rng.normal(size=(len(true), len(C)))
    squares = ((outcomes[:, None, :] - whitened[None]) ** 2).sum(-1)
    likely = np.exp(-(squares - squares.min(1, keepdims=True)) / 2)
    return np.asarray(likely / likely.sum(1, keepdims=True))


def _left(weights: ndarray, reward: ndarray) -> float:
    """The standard deviation of reward (D,) under weights (truths, D), root mean square over truths."""
    mean = weights @ reward
    return float(np.sqrt(np.maximum(weights @ reward**2 - mean**2, 0.0).mean()))

