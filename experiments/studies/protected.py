"""Adapting among non-dominated policies against attackers.
A game of 20 policies and 8 attackers has uniform rewards in [0, 1]. Training starts from the policy that is best
against its worst attacker, and adds the policy that gains most over the set at some attacker until none does. At test
time EXP3 chooses among the set by the rewards that it receives. The attacker is fixed: one drawn at random, or the one
of the 8 that leaves least. All have 2,000 rounds of Bernoulli rewards. The bound on regret is 2.63 √(T K ln K) for a
set of K. The alternatives are the first policy alone, and EXP3 over all 20 policies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("PROTECTED", "2402.12673")
QUESTIONS = (
    Question("Is the regret per round below its bound (difference)?", "bound", below=0.0, effect=0.02),
    Question("Random attacker: more reward than the first policy?", "random", above=0.0, effect=0.02),
    Question("Least-leaving attacker: at most 0.05 less reward than the first policy at its worst?", "worst",
             above=-0.05, effect=0.02),
    Question("More reward per round than EXP3 over all policies?", "small", above=0.0, effect=0.01),
)
ROUNDS, MOST = 2000, 40


def kept(game: ndarray) -> list[int]:
    """The policies, rows of `game` (policies, attackers), that training keeps: the rest dominates none of them."""
    chosen = [int(game.min(1).argmax())]
    while (gain := (game - game[chosen].max(0)).max(1)).max() > 0:
        chosen.append(int(gain.argmax()))
    return chosen


def exp3(means: ndarray, rng: np.random.Generator, rounds: int = ROUNDS) -> float:
    """EXP3's mean reward per round with arms of these means, (K,): Auer et al. 2002, with the rate of their bound."""
    k = len(means)
    if k == 1:
        return float(means[0])
    mix = min(1.0, np.sqrt(k * np.log(k) / ((np.e - 1) * rounds)))
    logs, total = np.zeros(k), 0.0
    luck, pays = rng.random(rounds), rng.random((rounds, k)) < means
    for t in range(rounds):
        weight = np.exp(logs - logs.max())
        p = (1 - mix) * weight / weight.sum() + mix / k
        arm = min(int(np.searchsorted(p.cumsum(), luck[t])), k - 1)
        total += means[arm]
        logs[arm] += mix / k * pays[t, arm] / p[arm]
    return total / rounds


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.ENVIRONMENT, 2)
    game = rng.random((20, 8))
    chosen = kept(game)
    first, column = chosen[0], int(rng.integers(8))
    ours, all_ = exp3(game[chosen, column], rng), exp3(game[:, column], rng)
    best, k = float(game[:, column].max()), len(chosen)
    bound = 2 * np.sqrt(np.e - 1) * np.sqrt(k * np.log(k) / ROUNDS)
    return {"bound": best - ours - bound, "random": ours - game[first, column],
            "worst": min(exp3(game[chosen, c], rng) for c in range(8)) - game[first].min(), "small": ours - all_,
            "kept": k}
