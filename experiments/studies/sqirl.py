"""The effective horizon and the samples of SQIRL.
Locks have T states; one outcome of two leads on, the other ends the episode. Every j-th right outcome pays, 1 in all.
An action gives its outcome with probability 1 or 0.8. A deceptive lock also pays 0.08 for a wrong first outcome.
SQIRL(k, m) follows its policies up to state t and acts at random after it, in m episodes; it averages returns and
makes k − 1 backups. Samples: episodes at the best k and least m at which half of 20 tries find the best policy. The
effective horizon H: the least k + log₂(1/Δ_k²) over sufficient k; Δ_k is the smallest gap of Q^k on that path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy.stats import spearmanr

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("The effective horizon in stochastic environments", "2312.08369")
QUESTIONS = (
    Question("Is the deceptive lock's least sufficient k above 1?", "least", above=1.5),
    Question("With one backup fewer, is the share of solved tries on it below 0.05, with 4,096 episodes a state?",
             "short", below=0.05, effect=0.04),
    Question("With the sufficient k, is the share above 0.9?", "enough", above=0.9, effect=0.05),
    Question("Is the rank correlation of samples with the effective horizon above 0.8, over 22 locks?", "rank",
             above=0.8, effect=0.05),
    Question("Do samples stay below T 2^H (largest log₂ of the ratio over the locks)?", "limit", below=0.0, effect=0.2),
    Question("Is the rank correlation higher than the correlation with the length T?", "over", above=0.0, effect=0.05),
)
EXACT, MOST = ("least",), 20


class Lock(NamedTuple):
    """T states, pay after every j-th, for a wrong first outcome `decoy`, slips with probability p."""

    T: int
    j: int
    p: float
    decoy: float = 0.0

    @property
    def paid(self) -> ndarray:
        """(T, 2) what the wrong outcome, 0, and the right one, 1, pay."""
        out = np.zeros((self.T, 2))
        out[self.j - 1 :: self.j, 1] = self.j / self.T
        out[0, 0] = self.decoy
        return out


LURE = Lock(6, 6, 0.0, 0.08)
LOCKS = [Lock(T, j, p) for p in (0.0, 0.2) for T in (4, 6, 8) for j in (1, 2, 3, 4, 6, 8) if T % j == 0]


def gaps(lock: Lock) -> ndarray:
    """(T,) for k = 1..T the smallest Q^k(right) − Q^k(wrong) over the states, exactly."""
    paid, out = lock.paid, np.zeros(lock.T)
    ahead = np.zeros(lock.T + 1)
    for t in range(lock.T - 1, -1, -1):
        ahead[t] = (paid[t].sum() + ahead[t + 1]) / 2
    for k in range(lock.T):
        outcome = paid + np.stack((0 * ahead[1:], ahead[1:]), 1)
        out[k] = (1 - 2 * lock.p) * (outcome[:, 1] - outcome[:, 0]).min()
        ahead = np.append((outcome * (lock.p, 1 - lock.p)).sum(1).clip((outcome * (1 - lock.p, lock.p)).sum(1)), 0)
    return out


def horizon(lock: Lock) -> float:
    """The effective horizon."""
    return min(k + np.log2(1 / gap**2) for k, gap in enumerate(gaps(lock), 1) if gap > 0)


def solved(lock: Lock, k: int, m: int, rng: np.random.Generator, tries: int = 20) -> float:
    """The share of tries in which SQIRL(k, m) is right in every state."""
    right = np.ones(tries, dtype=bool)
    for t in range(lock.T):
        acts = rng.integers(2, size=(tries, m, lock.T - t))
        outcome = acts ^ (rng.random(acts.shape) < lock.p)
        there = np.concatenate((np.ones((tries, m, 1), int), np.cumprod(outcome, 2)[:, :, :-1]), 2)
        got = there * lock.paid[t:][np.arange(lock.T - t), outcome]
        deep = min(k, lock.T - t) - 1
        value = _means(got[:, :, deep:].sum(2), acts[:, :, deep], there[:, :, deep])
        for i in range(deep - 1, -1, -1):
            value = _means(got[:, :, i] + outcome[:, :, i] * value.max(1)[:, None], acts[:, :, i], there[:, :, i])
        tie = rng.random(tries) < 0.5
        right &= (value[:, 1] > value[:, 0]) | ((value[:, 1] == value[:, 0]) & tie)
    return float(right.mean())


def _means(target: ndarray, act: ndarray, there: ndarray) -> ndarray:
    """(tries, 2) mean target of each action where the state was reached; 0 where it never was."""
    chosen = np.stack([there * (act == a) for a in (0, 1)], -1)
    return (chosen * target[..., None]).sum(1) / np.maximum(chosen.sum(1), 1)


def samples(lock: Lock, rng: np.random.Generator) -> float:
    """ln of the episodes, T m, with which the best k first solves half of the tries."""
    for m in 2 ** np.arange(12):
        if any(solved(lock, k, int(m), rng) >= 0.5 for k in range(1, lock.T + 1)):
            return float(np.log(lock.T * m))
    return float(np.log(lock.T * 2**12))


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.ENVIRONMENT, 1)
    least = int((gaps(LURE) > 0).argmax()) + 1
    taken = [samples(lock, rng) for lock in LOCKS]
    rank, length = (float(spearmanr(taken, x).statistic) for x in (list(map(horizon, LOCKS)), [x.T for x in LOCKS]))
    limit = max(x / np.log(2) - np.log2(lock.T) - horizon(lock) for x, lock in zip(taken, LOCKS, strict=True))
    return {"least": least, "short": solved(LURE, least - 1, 4096, rng), "enough": solved(LURE, least, 4096, rng),
            "rank": rank, "limit": limit, "over": rank - length}
