"""Simulated pilots with a planted truth, inside the fitted forms and outside them.

Noise is as real runs have it: seeds differ in how fast they learn, checkpoints of a run are correlated, held-out
reward is read on a finite problem set, some runs stop early and some fall below their start. How n matters is as in
IsoCompute (arXiv 2603.12151): a larger n rises later, and a smaller one ends lower, because what it learns on some
problems it unlearns on others (interference).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray

from isocost.laws.curves import Curve
from isocost.runs.arm import Arm
from isocost.stats.forms import gain_share, peak, steepness

Truth = Callable[[ndarray], ndarray]
NS = (2, 4, 8, 16, 32)
END = 8000.0            # rollouts of a pilot run, unless a design says otherwise
INSIDE = ("sigmoid", "slow", "fast")
OUTSIDE = ("richards", "power", "gompertz", "two-stage", "decline", "collapse")
TAILS = {"sigmoid": 1.0, "slow": 0.4, "fast": float("inf")}
KEPT = 0.6              # correlation of a run's level over a factor sqrt(e) of C
MOVED = 0.15            # gain of reward at which runs differ in full; at the base they are one policy


@dataclass(frozen=True)
class Design:
    """What a pilot runs: n, seeds, evaluation points log-spaced over a factor `span` up to `end` rollouts."""

    ns: tuple[int, ...] = NS
    seeds: int = 3
    points: int = 8
    span: float = 32.0
    end: float = END
    B: int = 16
    early: float = 0.0      # share of runs that stop at a random point
    crashed: float = 0.0    # share of runs that fall below their start
    held_out: int = 0       # problems of each half of the held-out set, of which reward is a share; 0 reads it exactly


@dataclass(frozen=True, eq=False)
class Planted:
    """A truth: the base's reward `R0`, one mean curve per n, and how runs scatter about it.

    `parameters` are each arm's true A, Cmid, b, for kinds that are one rise from R0 to A; b is `forms.steepness`.
    """

    kind: str
    R0: float
    curves: Mapping[int, Truth]
    sd: float = 0.02        # of a run about its arm's mean, in reward at R = 1/2
    speed: float = 0.12     # of the log of a run's speed
    parameters: Mapping[int, Mapping[str, float]] | None = None

    def reward(self, n: int, C: ndarray | float) -> ndarray:
        """The mean curve of arm n at C."""
        return np.asarray(self.curves[n](np.asarray(C, dtype=float)))

    def best(self, C: float) -> int:
        """The n with the highest mean reward at C."""
        return max(self.curves, key=lambda n: float(self.reward(n, C)))

    def n_star(self, C: ndarray | float) -> ndarray:
        """The best n at C (K,), read between the n of the grid: the vertex of a parabola in log2 n."""
        ns = sorted(self.curves)
        return np.asarray(2.0 ** peak(np.log2(ns), np.array([self.reward(n, C) for n in ns])))

    def reach(self, n: int, reward: float, upto: float = 1e9) -> float:
        """Rollouts at which arm n's mean curve first has this reward; infinite where it never does."""
        C = np.geomspace(1.0, upto, 4000)
        values = self.reward(n, C)
        at = int((values >= reward).argmax())
        if values[at] < reward:
            return float("inf")
        if at == 0:
            return float(C[0])
        share = (reward - values[at - 1]) / (values[at] - values[at - 1])
        return float(C[at - 1] * (C[at] / C[at - 1]) ** share)

    def extra(self, n: int, C: float) -> float:
        """The share of compute beyond C that arm n needs to reach what the best arm has at C; 0 for the best."""
        best = float(self.reward(self.best(C), C))
        return max(self.reach(n, best) / C - 1, 0.0) if float(self.reward(n, C)) < best else 0.0

    def level_sd(self, n: int, C: ndarray) -> ndarray:
        """Standard deviation in reward of a run's own level at C (K,), speed apart."""
        mean = self.reward(n, C)
        return np.asarray(0.85 * self.sd * 4 * mean * (1 - mean) * np.clip((mean - self.R0) / MOVED, 0, 1))

    def run(self, n: int, C: ndarray, rng: np.random.Generator) -> ndarray:
        """One run's reward at C (K,): a speed of its own, and checkpoints correlated with their neighbours."""
        level = np.empty(len(C))
        level[0] = rng.normal()
        for k in range(1, len(C)):
            keep = KEPT ** (np.log(C[k] / C[k - 1]) / 0.5)
            level[k] = keep * level[k - 1] + np.sqrt(1 - keep**2) * rng.normal()
        own = self.reward(n, C * np.exp(self.speed * rng.normal()))
        return np.asarray(np.clip(own + level * self.level_sd(n, C), 0, 1))

    def covariance(self, n: int, C: ndarray) -> ndarray:
        """Covariance (K, K) of one run's reward at C (K,) about the mean curve, the speed's part linearised."""
        slope = (self.reward(n, C * 1.01) - self.reward(n, C / 1.01)) / (2 * np.log(1.01))
        apart = np.abs(np.log(C)[:, None] - np.log(C)[None, :])
        level = self.level_sd(n, C)
        return np.asarray(self.speed**2 * np.outer(slope, slope) + np.outer(level, level) * KEPT ** (apart / 0.5))

    def curve(self, n: int, seed: int, C: ndarray, rng: np.random.Generator, design: Design = Design(),
              purpose: str = "pilot") -> Curve:
        """One run as a record would give it, the base at C = 0 first."""
        reward = np.concatenate([[self.R0], self.run(n, C, rng)])
        if design.held_out:
            select, audit = rng.binomial(design.held_out, reward, (2, len(reward))) / design.held_out
        else:
            apart = np.concatenate([[0.0], rng.normal(size=len(C)) * 0.004])
            select, audit = np.clip([reward + apart, reward - apart], 0, 1)
        at = np.concatenate([[0.0], C])
        return Curve(f"n{n}-s{seed}", Arm(n=n, B=design.B, lr=1e-3), seed, at, select, audit, at / 1000, at / n / 1000,
                     purpose=purpose)

    def pilot(self, design: Design, rng: np.random.Generator) -> list[Curve]:
        """Every run of a design."""
        C = np.geomspace(design.end / design.span, design.end, design.points)
        out = []
        for n in design.ns:
            for seed in range(design.seeds):
                last = int(rng.integers(1, len(C))) if rng.random() < design.early else len(C)
                curve = self.curve(n, seed, C[:last], rng, design)
                if rng.random() < design.crashed:
                    fallen = np.linspace(1.0, 0.3, len(curve.C))
                    curve = replace(curve, select=curve.select * fallen, audit=curve.audit * fallen, diverged=True)
                out.append(curve)
        return out


def plant(kind: str, rng: np.random.Generator, ns: tuple[int, ...] = NS, end: float = END, *,
          middle: tuple[float, float] = (0.08, 0.35), interference: float = 0.12, rough: float = 0.2,
          related: bool = True) -> Planted:
    """A truth of this kind: every number drawn afresh.

    `middle` are the least and the greatest midpoint of the smallest n, in units of `end`; `interference` is the most
    that the smallest n can end below the largest; `rough` is how far neighbouring n differ besides what n itself
    does: 1 is 0.04 of reward, 15 % of the exponent and 30 % of the delay. Measured sweeps are smooth in n. Where n
    are not `related`, each has numbers of its own, as the smallest n of some other truth: only the base is one.
    """
    R0, (top, slope, first, later, lost) = rng.uniform(0.1, 0.45), _numbers(rng, end, middle, interference)
    curves: dict[int, Truth] = {}
    parameters: dict[int, Mapping[str, float]] = {}
    for place, n in enumerate(ns):
        if not related:
            (top, slope, first, _, lost), later = _numbers(rng, end, middle, interference), 0.0
        apart = rough * rng.uniform(-1, 1, 3)
        A = min(1.0, top - lost * ns[0] / n + 0.04 * apart[0])
        b, Cmid = slope * (1 + 0.15 * apart[1]), first * np.exp(later * place * (1 + 0.3 * apart[2]))
        loss = 0.03 * (len(ns) - place) / len(ns) * rng.uniform(0.3, 1.7)
        curves[n] = _curve(R0, A, _share(kind, b, Cmid, end, rng), kind, loss, end)
        if kind in TAILS:
            parameters[n] = {"A": A, "Cmid": float(Cmid), "b": float(steepness(b, TAILS[kind]))}
    return Planted(kind, R0, curves, parameters=parameters or None)


def _numbers(
    rng: np.random.Generator, end: float, middle: tuple[float, float], interference: float
) -> tuple[float, float, float, float, float]:
    """(highest asymptote, exponent, first midpoint, delay of each next n in ln C, what the smallest n loses)."""
    top, slope = rng.uniform(0.65, 0.99), np.exp(rng.uniform(np.log(0.7), np.log(2.2)))
    return top, slope, end * rng.uniform(*middle), rng.uniform(0.15, 0.7), interference * rng.uniform()


def _curve(R0: float, A: float, share: Truth, kind: str, loss: float, end: float) -> Truth:
    def curve(C: ndarray) -> ndarray:
        reward = R0 + (A - R0) * share(C)
        if kind == "decline":       # over-fitting: reward falls off slowly after the pilot
            reward = reward - loss * np.log1p(C / end) / np.log(2) * C / (C + end)
        if kind == "collapse":      # the smallest n of the grid lose a part of what they gained, late and for good
            reward = reward - 4 * loss * np.maximum(loss - 0.02, 0) / 0.03 * (A - R0) * gain_share(C, 3 * end, 4.0)
        return np.asarray(np.clip(reward, 0.0, 1.0))
    return curve


def _share(kind: str, b: float, Cmid: float, end: float, rng: np.random.Generator) -> Truth:
    """The share of its gain that a curve of this kind has made, by C."""
    if kind in TAILS:
        return lambda C: gain_share(C, Cmid, b, TAILS[kind])
    if kind == "richards":      # the generalised logistic in ln C: early and late halves of unequal length
        skew = np.exp(rng.uniform(-1.2, 1.2))
        return lambda C: (1 + (2**skew - 1) * (C / Cmid) ** (-b)) ** (-1 / skew)
    if kind == "power":
        return lambda C: 1 - (1 + 2 * C / Cmid) ** (-0.6 * b)
    if kind == "gompertz":
        return lambda C: np.exp(-np.log(2) * (C / Cmid) ** (-0.9 * b))
    if kind == "two-stage":
        first, second = rng.uniform(0.55, 0.75), end * rng.uniform(0.7, 3)
        return lambda C: first * gain_share(C, Cmid / 2, 1.3 * b) + (1 - first) * gain_share(C, second, 2.0)
    return lambda C: gain_share(C, Cmid, b)
