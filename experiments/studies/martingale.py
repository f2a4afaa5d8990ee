"""The squared TD error is a wrong objective in continuous time.
A Brownian motion X on [0, 1] ends with the reward X_1: the value is J(t, x) = x. J is sought among (θ (1 − t) + t) x,
so θ = 1 is right. Along the right J the value is a martingale. The squared TD error is its quadratic variation, least
at θ = −1/2. The martingale loss and orthogonality, E∫∂J dM = 0 (TD), give 1. With a running reward x², sums over steps
of Δ leave an error of order Δ. All of this is computed from moments of X. The last question uses 100 sampled paths of
50 steps for both estimators.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("Policy evaluation in continuous time", "2108.06655")
QUESTIONS = (
    Question("Is the minimiser of the squared TD error off by more than 1, with 1,000 steps?", "squared", above=1.0),
    Question("Is TD's solution off by less than 1e-9?", "orthogonal", below=1e-9),
    Question("Is the minimiser of the martingale loss off by less than 1e-9?", "loss", below=1e-9),
    Question("Does the error with a running reward fall with Δ at a power above 0.95?", "order", above=0.95),
    Question("Are paths' TD solutions nearer than their martingale-loss solutions (mean difference of errors)?",
             "nearer", below=0.0, effect=0.02),
)
EXACT = ("squared", "orthogonal", "loss", "order")
MOST = 60


def solutions(second: ndarray, ahead: ndarray, t: ndarray) -> tuple[float, float, float]:
    """θ by the squared TD error, by TD and by the martingale loss: from E X_i X_i, E X_i X_{i+1} at the times but the
    last, E X_i X_1 in the last column of `second`, (3, steps): (X_i², X_{i+1}², X_i X_1), and `ahead` X_i X_{i+1}."""
    now, then, end = second
    a, b, c, d = 1 - t[:-1], t[:-1], 1 - t[1:], t[1:]      # J_i = (θ a + b) X_i
    # ΔJ = θ (c X' − a X) + d X' − b X
    slope = c * c * then - 2 * a * c * ahead + a * a * now
    cross = c * d * then - (c * b + a * d) * ahead + a * b * now
    td = (a * (c * ahead - a * now)).sum(), (a * (d * ahead - b * now)).sum()
    return (float(-cross.sum() / slope.sum()), float(-td[1] / td[0]),
            float((a * (end - b * now)).sum() / (a * a * now).sum()))


def running(steps: int) -> float:
    """θ − 1 of the martingale loss for r = x², left sums, in the family θ ((1 − t) x² + (1 − t)²/2): E X⁴ = 3t²."""
    t, dt = np.arange(steps) / steps, 1 / steps
    left = 1 - t
    short = -left * dt / 2              # of the left sum, given X_i: (1 − t) x² + (1 − t)²/2 − (1 − t) Δ/2
    mean, square = left * t + left**2 / 2, left**2 * 3 * t**2 + left**3 * t + left**4 / 4
    return float((short * mean).sum() / square.sum())


def measure(seed: int) -> Mapping[str, float]:
    t = np.linspace(0, 1, 1001)
    exact = solutions(np.stack((t[:-1], t[1:], t[:-1])), t[:-1], t)
    few = np.linspace(0, 1, 51)
    moves = generator(seed, Purpose.ENVIRONMENT, 0).standard_normal((100, 50)) / np.sqrt(50)
    x = np.concatenate((np.zeros((100, 1)), moves.cumsum(1)), 1)
    means = np.stack((x[:, :-1] ** 2, x[:, 1:] ** 2, x[:, :-1] * x[:, -1:])).mean(1)
    _, td, loss = solutions(means, (x[:, :-1] * x[:, 1:]).mean(0), few)
    return {"squared": abs(exact[0] - 1), "orthogonal": abs(exact[1] - 1), "loss": abs(exact[2] - 1),
            "order": float(np.log(running(100) / running(1000)) / np.log(10)), "nearer": abs(td - 1) - abs(loss - 1)}
