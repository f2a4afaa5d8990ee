"""MBTL: source tasks by a Gaussian process of their returns, less a gap that grows with the distance to a target.

    J ~ GP(0, a exp(−|x − x'|² / 2 l²) + 0.1²),  a and l of the greatest likelihood on a grid
    best(x') = max_k (J(x_k) − c |x_k − x'|)
    next source: argmax_x mean_x' max(μ(x) + β σ(x) − c |x − x'| − best(x'), 0), of those not taken; the first: 1/2

    Cho et al. 2024, arXiv:2408.04498. There each source has a policy of its own, and best(x') is measured; here one
    agent goes on from source to source, J is the mean return of the last quarter of its episodes, and best(x') is by
    the gap.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from isocost.control.teachers import Lesson, Lessons
from isocost.errors import UserError
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("MBTL", "2408.04498", 2024, "uniform", "Few source tasks, chosen by a model of the gap, serve all tasks.")
NOISE = 0.1     # sd of a return, on the task's scale


def predicted(x: ndarray, y: ndarray, at: ndarray) -> tuple[ndarray, ndarray]:
    """Mean and sd, (M,), of the Gaussian process at these points, (M,), from the returns y (k,) at x (k,)."""
    def kernel(p: ndarray, q: ndarray, size: float, length: float) -> ndarray:
        return size * np.exp(-0.5 * ((p[:, None] - q) / length) ** 2)

    def likelihood(setting: tuple[float, float]) -> float:
        whole = kernel(x, x, *setting) + NOISE**2 * np.eye(len(x))
        return float(-0.5 * y @ np.linalg.solve(whole, y) - 0.5 * np.linalg.slogdet(whole)[1])

    best = max(((s, k) for s in np.geomspace(0.01, 10, 13) for k in np.geomspace(0.05, 2, 13)), key=likelihood)
    across = kernel(at, x, *best)
    weight = np.linalg.solve(kernel(x, x, *best) + NOISE**2 * np.eye(len(x)), across.T).T
    return weight @ y, np.sqrt(np.maximum(best[0] - (weight * across).sum(-1), 0.0))


def following(y: ndarray, taken: list[int], tasks: ndarray, slope: float, beta: float) -> int:
    """The index in `tasks`, (M,), of the next source, from the returns y, (k,), of those taken."""
    mean, sd = predicted(tasks[taken], y, tasks)
    gaps = slope * np.abs(tasks[:, None] - tasks)
    known = (y[:, None] - gaps[taken]).max(0)
    gain = np.maximum((mean + beta * sd)[:, None] - gaps - known, 0.0).mean(-1)
    gain[taken] = -1.0
    return int(gain.argmax())


@bounds(every="[1, inf)", most="[1, inf)", grid="[1, inf)")
def choose(
    past: Lessons, rng: np.random.Generator, *, every: int = 20, most: int = 5, grid: int = 25, slope: float = 1.0,
    beta: float = 1.0
) -> Lesson:
    """The newest source for `every` episodes; after `most` sources, any of them. Sources are `grid` evenly spaced
    tasks; `slope` is c, in scaled returns; `beta` is β. Raises UserError if there are fewer tasks than sources."""
    if grid < most:
        raise UserError(f"mbtl cannot choose {most} sources of {grid} tasks: write mbtl:most={grid}")
    tasks = (np.arange(grid) + 0.5) / grid

    def added(taken: list[int], i: int) -> list[int]:
        if (i + 1) % every or len(taken) == most:
            return taken
        ends = [past.returns[: i + 1][past.contexts[: i + 1, 0] == tasks[k]] for k in taken]
        y = np.array([r[-max(len(r) // 4, 1) :].mean() if len(r) else 0.0 for r in ends])
        return [*taken, following(y, taken, tasks, slope, beta)]

    taken = past.folded("sources", lambda: [grid // 2], added)
    pick = taken[-1] if len(past.returns) < every * most else taken[int(rng.integers(len(taken)))]
    return past.of(tasks[[pick]], rng)
