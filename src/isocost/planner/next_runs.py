"""What would settle it: the runs to add to a pilot, by what they are expected to tell for their rollouts.

The law's draws are curves of all n at once. Each is taken for the truth in turn: the outcome of a candidate's runs is
drawn from it, every draw is weighed by how well it foretold that outcome, and the choice of n is made again (a
preposterior analysis; Raiffa and Schlaifer, 1961). What is left of the expected loss, averaged over the truths, is what
the runs would leave open.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.laws.law import DEAREST, SELECT, Law
from isocost.stats.intervals import spread
from isocost.stats.posterior import correlation, covariance, dearer, thinned

Aim = Literal["choice", "reward"]
FURTHER = (2.0, 4.0)        # how far runs may be continued, in units of their length
LOOKS = 3                   # evaluations of a new or continued run that count
TOLD = 0.01                 # expected extra compute, or standard deviation of reward, below which nothing is open


@dataclass(frozen=True, slots=True)
class NextRun:
    """Runs to add at one n: `new` seeds to C rollouts each, or, where `new` is 0, the runs there are continued to C.

    `rollouts` is what that costs; `aim` is what it is for, `now` and `after` what is open of it before and, in
    expectation, after: the choice's expected extra compute as a share, or the standard deviation of the reward.
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
        """What it is expected to take off, per rollout: what candidates are ordered by."""
        return (self.now - self.after) / self.rollouts

    @property
    def text(self) -> str:
        """One line for the reader."""
        what = f"{self.new} new seed{'s' * (self.new > 1)} of n={self.n}" if self.new else f"n={self.n} continued"
        named = "the choice's expected extra compute" if self.aim == "choice" else "the doubt of the reward"
        shown = f"{self.now:.1%} to {self.after:.1%}" if self.aim == "choice" else f"{self.now:.3f} to {self.after:.3f}"
        return f"{what} to {self.C:,.0f} rollouts ({self.rollouts:,.0f} in all): {named} from {shown}"

    @property
    def option(self) -> str:
        """The option of `isocost pilot` that buys it."""
        return f"--seeds {self.n}={self.new}" if self.new else f"--longer {self.n}={self.C:.0f}"

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def next_runs(law: Law, C: float, *, top: int = 3, most: float = np.inf, truths: int = 100) -> tuple[NextRun, ...]:
    """The best runs to add before C rollouts are spent on one n, most told per rollout first.

    The aim is the choice of n where that is open by more than 1 % of compute, else the reward of the n that would be
    chosen. `most` is the most rollouts that may be spent. Empty where the law has no curve, or nothing to tell is left.
    Raises UserError for a C that is not above 0.
    """
    if not C > 0:
        raise UserError(f"runs are added for a question at some C above 0, got {C:g}")
    if not law.arms:
        return ()
    drawn = np.array([arm.fits[SELECT].draws for arm in law.arms])
    loss = dearer(drawn, law.tails, law.R0[SELECT], C, DEAREST)
    chosen = int(loss.mean(1).argmin())
    reward = law.paths(law.ns[chosen], np.array([C]), SELECT)[:, 0]
    now = float(loss[chosen].mean())
    aim: Aim = "choice" if now > TOLD else "reward"
    if aim == "reward":
        now = float(reward.std())
    if now < TOLD:
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
    """(n, new seeds, C, rollouts): one or three more seeds as long as the arm's, or its runs 2 or 4 times as long."""
    out = []
    for arm in law.arms:
        end, runs = float(arm.C[-1]), len(arm.runs)
        out += [(arm.n, new, end, new * end) for new in (1, 3)]
        out += [(arm.n, 0, times * end, (times - 1) * end * runs) for times in FURTHER]
    return out


def _weights(law: Law, n: int, new: int, end: float, truths: int) -> ndarray:
    """The weights on draws (truths, D) after a candidate's runs, where some of the draws are the truth in turn."""
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
    seen = whitened[true] + rng.normal(size=(len(true), len(C)))
    squares = ((seen[:, None, :] - whitened[None]) ** 2).sum(-1)
    likely = np.exp(-(squares - squares.min(1, keepdims=True)) / 2)
    return np.asarray(likely / likely.sum(1, keepdims=True))


def _left(weights: ndarray, reward: ndarray) -> float:
    """The standard deviation of reward (D,) that is left under weights (truths, D), root mean square over truths."""
    mean = weights @ reward
    return float(np.sqrt(np.maximum(weights @ reward**2 - mean**2, 0.0).mean()))

