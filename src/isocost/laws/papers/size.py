"""Learning speed by model size: one law for all sizes, which extrapolates to larger ones.

    log L(N, X) = -k(N) log X + E(N),   k(N) = K_max N / (N + N_0)      arXiv 2509.25300
    L(N, X) = ((N_0 / N)^beta + B(N) / (X + X_0(N)))^alpha              its repository, later

L = 1 - pass@1 on held-out problems, X compute or samples, N parameters; compute is 6 N times the tokens of prompt and
answer. In the first law the speed k rises with N to K_max, half of it at N_0, and E(N) is free for each size: a
straight line in logarithms, valid for a part of training. The second law bends: it has a finite loss before training
and a floor, (N_0 / N)^(alpha beta), with B and X_0 free for each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.optimize import least_squares, minimize_scalar

from isocost.errors import UserError

FASTEST = 2.0                        # largest K_max of the search
HALFWAY = (1e5, 1e12)                # range of N_0 of the search
OUTER = (0.02, 1.0)                  # range of alpha: runs that bend little identify only alpha beta


@dataclass(frozen=True)
class SizeRun:
    """One size's training: its loss 1 - pass@1 at each X, compute or samples."""

    parameters: float
    x: ndarray        # (K,)
    loss: ndarray     # (K,)

    def first(self, share: float) -> SizeRun:
        """The first part of the run, up to this share of its largest X."""
        keep = self.x <= share * self.x.max()
        return SizeRun(self.parameters, self.x[keep], self.loss[keep])


@dataclass(frozen=True)
class SizeLaw:
    """K_max, N_0, and E for each size it was fitted to."""

    fastest: float
    halfway: float
    height: Mapping[float, float]

    def slope(self, parameters: ndarray | float) -> ndarray:
        """k(N)."""
        n = np.asarray(parameters, dtype=float)
        return self.fastest * n / (n + self.halfway)

    def __call__(self, parameters: float, x: ndarray | float) -> ndarray:
        """The loss of a size in the fit, or added by `placed`, at X. Raises UserError for another."""
        if parameters not in self.height:
            known = ", ".join(f"{n:g}" for n in self.height)
            raise UserError(f"the law has sizes {known}, not {parameters:g}: add it with `placed` and its first points")
        return np.exp(self.height[parameters] - self.slope(parameters) * np.log(x))

    def explained(self, run: SizeRun) -> float:
        """R^2 of log L over a run: 1 is perfect, 0 is no better than the run's mean."""
        return _explained(self(run.parameters, run.x), run.loss)

    def placed(self, run: SizeRun) -> SizeLaw:
        """The same law with one more size: K_max and N_0 are unchanged, E is fitted to the given points."""
        height = float(np.mean(np.log(run.loss) + self.slope(run.parameters) * np.log(run.x)))
        return SizeLaw(self.fastest, self.halfway, {**self.height, run.parameters: height})


def fit_size(runs: Sequence[SizeRun]) -> SizeLaw:
    """K_max, N_0 and every E(N) by least squares in log L over all runs at once, every size with equal weight.

    For a given N_0 the rest is linear and solved; N_0 is searched on a grid, then within its best cell. Raises
    UserError for fewer than two sizes, for a loss outside (0, 1], or if the loss does not fall.
    """
    sizes = _sizes(runs)
    for r in runs:
        if not (r.x > 0).all():
            raise UserError(f"the run of {r.parameters:g} parameters has X = 0, where this law is infinite")
    n = np.concatenate([np.full(len(r.x), r.parameters) for r in runs])
    x, y = (np.log(np.concatenate([getattr(r, f) for r in runs])) for f in ("x", "loss"))
    of = np.searchsorted(sizes, n)
    weight = 1.0 / np.bincount(of)[of]
    x_off, y_off = (v - np.bincount(of, weight * v)[of] for v in (x, y))      # minus each size's mean: E cancels

    def solve(log_halfway: float) -> tuple[float, float]:
        pull = -x_off * n / (n + np.exp(log_halfway))
        fastest = float(np.clip((weight * pull * y_off).sum() / (weight * pull**2).sum(), 0.0, FASTEST))
        return float((weight * (y_off - fastest * pull) ** 2).sum()), fastest

    grid = np.linspace(np.log(HALFWAY[0]), np.log(HALFWAY[1]), 200)
    best = int(np.argmin([solve(g)[0] for g in grid]))
    cell = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    log_halfway = float(minimize_scalar(lambda g: solve(g)[0], bounds=cell, options={"xatol": 1e-9}).x)
    fastest = solve(log_halfway)[1]
    if fastest == 0.0:
        raise UserError("the loss does not fall with X in these runs, so no learning speed can be fitted")
    bare = SizeLaw(fastest, float(np.exp(log_halfway)), {})
    shares = {s: weight[n == s] @ (y + bare.slope(n) * x)[n == s] for s in sizes}
    return SizeLaw(bare.fastest, bare.halfway, {s: float(h) for s, h in shares.items()})


@dataclass(frozen=True)
class FlooredLaw:
    """N_0, beta and alpha, and for each size it was fitted to B and X_0."""

    halfway: float
    beta: float
    alpha: float
    gain: Mapping[float, float]         # B
    begun: Mapping[float, float]        # X_0: the X that earlier training is worth

    def __call__(self, parameters: float, x: ndarray | float) -> ndarray:
        """The loss of a size in the fit at X, which may be 0. Raises UserError for another."""
        if parameters not in self.gain:
            known = ", ".join(f"{n:g}" for n in self.gain)
            raise UserError(f"the law has sizes {known}, not {parameters:g}")
        left = self.gain[parameters] / (np.asarray(x, dtype=float) + self.begun[parameters])
        return ((self.halfway / parameters) ** self.beta + left) ** self.alpha

    def floor(self, parameters: ndarray | float) -> ndarray:
        """The loss of any size with unlimited training: (N_0 / N)^(alpha beta)."""
        return (self.halfway / np.asarray(parameters, dtype=float)) ** (self.alpha * self.beta)

    def explained(self, run: SizeRun) -> float:
        """R^2 of log L over a run."""
        return _explained(self(run.parameters, run.x), run.loss)


def fit_floored(runs: Sequence[SizeRun]) -> FlooredLaw:
    """The law with a floor by least squares in log L, every size with equal weight, from several starts.

    Three parameters are shared and each size has two, so every size needs at least four points. Raises UserError for
    fewer points, for fewer than three sizes, or for a loss outside (0, 1].
    """
    sizes = _sizes(runs)
    n = np.concatenate([np.full(len(r.x), r.parameters) for r in runs])
    x, loss = (np.concatenate([getattr(r, f) for r in runs]) for f in ("x", "loss"))
    of = np.searchsorted(sizes, n)
    if len(sizes) < 3 or np.bincount(of).min() < 4:
        raise UserError("a law with a floor needs at least 3 sizes with at least 4 points each")
    y, root = np.log(loss), np.bincount(of)[of] ** -0.5
    unit = np.array([np.exp(np.log(np.maximum(x[of == k], 1e-300)[x[of == k] > 0]).mean()) for k in range(len(sizes))])
    least = np.array([loss[of == k].min() for k in range(len(sizes))])

    def curve(p: ndarray) -> ndarray:
        q = np.exp(np.clip(p, -200.0, 200.0))
        gain, begun = q[3 : 3 + len(sizes)], q[3 + len(sizes) :]
        floor = q[1] * (p[0] - np.log(n))                                 # the logarithm of (N_0 / N)^beta
        left = np.log(gain[of]) - np.log(x / unit[of] + begun[of])
        return q[2] * np.logaddexp(floor, left)

    edges = np.full((2, 3 + 2 * len(sizes)), [[-np.inf], [np.inf]])
    edges[:, 2] = np.log(OUTER)
    best: tuple[float, ndarray] | None = None
    for alpha in (0.1, 0.2, 0.5):
        for above in (0.3, 0.7):                                          # floor over the least loss of a size: a guess
            tilt = np.polyfit(np.log(sizes), np.log(above * least), 1)
            beta = max(-tilt[0], 0.02) / alpha
            halfway = float(np.mean(np.log(sizes) + np.log(above * least) / (alpha * beta)))
            inner = np.maximum(least ** (1 / alpha) * (1 - above), 1e-12)
            begin = [halfway, np.log(beta), np.log(alpha), *np.log(inner), *np.zeros(len(sizes))]
            found = least_squares(lambda p: root * (curve(p) - y), begin, bounds=edges, x_scale="jac", max_nfev=400)
            if best is None or found.cost < best[0]:
                best = float(found.cost), found.x
    assert best is not None
    p = best[1]
    gain, begun = np.exp(p[3 : 3 + len(sizes)]) * unit, np.exp(p[3 + len(sizes) :]) * unit
    return FlooredLaw(
        float(np.exp(p[0])), float(np.exp(p[1])), float(np.exp(p[2])),
        dict(zip(sizes, gain.tolist(), strict=True)), dict(zip(sizes, begun.tolist(), strict=True)),
    )


def _sizes(runs: Sequence[SizeRun]) -> list[float]:
    sizes = sorted({r.parameters for r in runs})
    if len(sizes) < 2:
        raise UserError(f"a law of model size needs at least 2 sizes; got {len(sizes)}")
    for r in runs:
        if not ((r.loss > 0) & (r.loss <= 1)).all() or not (r.x >= 0).all():
            raise UserError(f"the run of {r.parameters:g} parameters has losses outside (0, 1], or an X below 0")
    return sizes


def _explained(curve: ndarray, loss: ndarray) -> float:
    y = np.log(loss)
    return float(1 - ((np.log(curve) - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())
