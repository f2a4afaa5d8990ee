"""How learning speed goes with model size: one law for all sizes, that predicts a size not yet trained.

    log L(N, X) = -k(N) log X + E(N),   k(N) = K_max N / (N + N_0)      arXiv 2509.25300

L = 1 - pass@1 on held-out problems, X compute or samples, N parameters. Larger models learn faster, but never faster
than K_max, which half is reached of at N_0. E(N) is free for each size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.errors import UserError

FASTEST = 2.0                        # the largest K_max, and
HALFWAY = (1e5, 1e12)                # the range of N_0, that are searched


@dataclass(frozen=True)
class Run:
    """One size's training: its loss 1 - pass@1 at each X, compute or samples."""

    parameters: float
    x: ndarray        # (K,)
    loss: ndarray     # (K,)

    def first(self, share: float) -> Run:
        """Its beginning, up to a share of its largest X."""
        keep = self.x <= share * self.x.max()
        return Run(self.parameters, self.x[keep], self.loss[keep])


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
        """The loss of a size that was fitted, or placed, at X. Raises UserError for another."""
        if parameters not in self.height:
            known = ", ".join(f"{n:g}" for n in self.height)
            raise UserError(f"the law knows sizes {known}, not {parameters:g}: `placed` takes its first points")
        return np.exp(self.height[parameters] - self.slope(parameters) * np.log(x))

    def placed(self, run: Run) -> SizeLaw:
        """The same law with one more size: K_max and N_0 stay, E is that of the points given."""
        height = float(np.mean(np.log(run.loss) + self.slope(run.parameters) * np.log(run.x)))
        return SizeLaw(self.fastest, self.halfway, {**self.height, run.parameters: height})


def fit_size(runs: Sequence[Run]) -> SizeLaw:
    """Least squares in log L over all runs at once, every size with equal weight.

    For a given N_0 the rest is linear and solved; N_0 is searched on a grid, then by golden section. Raises UserError
    for fewer than two sizes, for a loss that is not in (0, 1], and where the loss does not fall.
    """
    sizes = sorted({r.parameters for r in runs})
    if len(sizes) < 2:
        raise UserError(f"a law of model size needs two sizes or more; there are {len(sizes)}")
    for r in runs:
        if not ((r.loss > 0) & (r.loss <= 1)).all() or not (r.x > 0).all():
            raise UserError(f"the run of {r.parameters:g} parameters has losses outside (0, 1], or an X of 0")
    n = np.concatenate([np.full(len(r.x), r.parameters) for r in runs])
    x, y = (np.log(np.concatenate([getattr(r, f) for r in runs])) for f in ("x", "loss"))
    of = np.searchsorted(sizes, n)
    weight = 1.0 / np.bincount(of)[of]
    x_off, y_off = (v - np.bincount(of, weight * v)[of] for v in (x, y))      # less each size's own mean: E is gone

    def solve(log_halfway: float) -> tuple[float, float]:
        pull = -x_off * n / (n + np.exp(log_halfway))
        fastest = float(np.clip((weight * pull * y_off).sum() / (weight * pull**2).sum(), 0.0, FASTEST))
        return float((weight * (y_off - fastest * pull) ** 2).sum()), fastest

    grid = np.linspace(np.log(HALFWAY[0]), np.log(HALFWAY[1]), 200)
    best = int(np.argmin([solve(g)[0] for g in grid]))
    log_halfway = _golden(lambda g: solve(g)[0], grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    fastest = solve(log_halfway)[1]
    if fastest == 0.0:
        raise UserError("the loss does not fall with X in these runs: there is no speed of learning to fit")
    bare = SizeLaw(fastest, float(np.exp(log_halfway)), {})
    shares = {s: weight[n == s] @ (y + bare.slope(n) * x)[n == s] for s in sizes}
    return SizeLaw(bare.fastest, bare.halfway, {s: float(h) for s, h in shares.items()})


def _golden(f: Callable[[float], float], low: float, high: float, steps: int = 60) -> float:
    """The least of a function with one valley."""
    ratio = (np.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = f(a), f(b)
    for _ in range(steps):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = f(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = f(b)
    return (low + high) / 2
