"""Online samples that offline data saves.
A lock of 8 states: action "on" leads on with probability 0.8, "out" ends the episode; rewards are Bernoulli with
unknown means. Policies leave at one state or never. All values are within ε/2 = 0.1, with probability 0.95, once max_π
‖φ_π‖² in (Λ_off + Λ_on)⁻¹ is below ε²/(2 ln(2 · 9/0.05)). φ_π are visits of a policy, Λ visits in the data. The fewest
online episodes and their policies are a convex programme, solved exactly. Our reading: transitions are known, and ε
stands for every policy's gap. Offline data: 10,000 episodes, uniform actions or always "on". Sampled: 2,000 lotteries
of rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("FTPedel", "2211.04974")
QUESTIONS = (
    Question("Uniform actions offline: does it save half of the online episodes (ratio)?", "uniform", below=0.5),
    Question("Always on: does it?", "on", below=0.5),
    Question("Always on: do policies chosen without regard to it need twice the episodes (ratio)?", "blind",
             above=2.0),
    Question("Always on, with the planned episodes: is the chosen policy within ε in more than 0.95 of lotteries?",
             "within", above=0.95, effect=0.02),
    Question("Does it lose less than the choice by offline data alone (difference of regret)?", "alone", below=0.0,
             effect=0.02),
)
EXACT, LENGTH, GO, EPSILON, OFFLINE = ("uniform", "on", "blind"), 8, 0.8, 0.2, 10_000


def visits() -> ndarray:
    """φ: (policies, 2 LENGTH) expected visits of (state, on) and then (state, out); the last policy never leaves."""
    reach = GO ** np.arange(LENGTH)
    on = np.tril(np.ones((LENGTH + 1, LENGTH)), -1) * reach
    return np.concatenate((on, np.eye(LENGTH + 1, LENGTH) * reach), 1)


def offline(kind: str) -> ndarray:
    """(2 LENGTH,) expected visits in the offline episodes."""
    if kind == "none":
        return np.zeros(2 * LENGTH)
    if kind == "on":
        return OFFLINE * visits()[-1]
    return OFFLINE * np.tile((GO / 2) ** np.arange(LENGTH) / 2, 2)


def uncertainty(online: ndarray, before: ndarray) -> ndarray:
    """‖φ_π‖² of each policy under the visits of offline data and of so many episodes of each policy."""
    phi = visits()
    return (phi**2 / np.maximum(before + online @ phi, 1e-9)).sum(1)


@cache
def planned(kind: str) -> tuple[float, ...]:
    """The fewest online episodes of each policy that make every value certain to ε/2."""
    most, before = EPSILON**2 / (2 * np.log(2 * (LENGTH + 1) / 0.05)), offline(kind)
    scale = 1000.0
    found = minimize(np.sum, np.full(LENGTH + 1, 20.0), bounds=[(0, None)] * (LENGTH + 1), method="SLSQP",
                     constraints={"type": "ineq", "fun": lambda x: np.log(most / uncertainty(scale * x, before))},
                     options={"maxiter": 1000, "ftol": 1e-10})
    return tuple(scale * found.x)


def blind() -> float:
    """The episodes that the mixture planned without offline data needs beside always-on data: by bisection."""
    most, before = EPSILON**2 / (2 * np.log(2 * (LENGTH + 1) / 0.05)), offline("on")
    mix = np.array(planned("none"))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if uncertainty(middle * mix, before).max() <= most else (middle, high)
    return high * float(mix.sum())


def chosen(counts: ndarray, means: ndarray, rng: np.random.Generator) -> ndarray:
    """(lotteries,) regret of the policy with the best estimate; what has no visits is taken for one half."""
    n = np.round(counts).astype(int)
    seen = np.where(n > 0, rng.binomial(n, means) / np.maximum(n, 1), 0.5)
    value = means @ visits().T
    return value.max(1) - np.take_along_axis(value, (seen @ visits().T).argmax(1)[:, None], 1)[:, 0]


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.ENVIRONMENT, 6)
    scratch, few, on = (sum(planned(kind)) for kind in ("none", "uniform", "on"))
    means = rng.random((2000, 2 * LENGTH))
    both = chosen(offline("on") + np.array(planned("on")) @ visits(), means, rng)
    alone = chosen(offline("on"), means, rng)
    return {"uniform": few / scratch, "on": on / scratch, "blind": blind() / on,
            "within": float((both <= EPSILON).mean()), "alone": float((both - alone).mean())}
