"""The best test-time strategy by difficulty: chosen on one half of the problems, measured on the other.

Parallel samples, revisions and search are each best at some difficulty: revisions help on easy problems, search on hard
ones (Snell et al. 2024, arXiv 2408.03314, section 3; "Can 1B surpass 405B?", arXiv 2502.06703). Here a strategy is a
name with an accuracy per problem, all at one budget. Difficulty must come from other samples than the accuracies: a
problem that is called hard because these samples failed would seem harder than it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.special import ndtri, stdtrit

from isocost import chance
from isocost.errors import UserError

EXACT = 12              # up to so many differences, every combination of signs is tried
FLIPS = 4000            # random combinations of signs for more


@dataclass(frozen=True)
class StrategyChoice:
    """One bin of difficulty: the best strategy, its accuracy, and the strategies that tie with it."""

    difficulty: tuple[float, float]     # lowest and highest in the bin
    problems: int
    best: str                           # over all problems of the bin
    accuracy: float                     # of choosing on one half, measured on the other
    interval: tuple[float, float]
    ties: tuple[str, ...]


@dataclass(frozen=True)
class ByDifficulty:
    """All bins together, against the best single strategy, which is chosen and measured in the same way."""

    choices: tuple[StrategyChoice, ...]
    accuracy: float
    interval: tuple[float, float]
    single: str
    single_accuracy: float
    gain: tuple[float, float, float]    # over the single one: mean, low, high
    level: float


def quantile_bins(difficulty: ndarray, count: int = 5) -> ndarray:
    """(P,) bins 0 .. count - 1 of nearly equal size by difficulty; equal difficulties may be split between bins."""
    ranks = np.argsort(np.argsort(np.asarray(difficulty), kind="stable"), kind="stable")
    bins: ndarray = ranks * count // len(ranks)
    return bins


def by_difficulty(
    difficulty: ndarray, accuracy: Mapping[str, ndarray], bins: ndarray | None = None, *, level: float = 0.9,
    seed: int = 0,
) -> ByDifficulty:
    """The best strategy of each bin, from (P,) difficulties and each strategy's (P,) accuracies at equal budgets.

    `bins` (P,) default to quintiles. As in the paper each bin's problems are split into two halves, and the best on one
    is measured on the other; the problem is the unit of the intervals. A strategy ties with the best unless a sign-flip
    permutation test of their differences over problems is significant, with the level divided by the number of pairs
    because the best was chosen from the same data. Raises UserError for fewer than two strategies or two problems in a
    bin.
    """
    names, rate = list(accuracy), np.asarray(difficulty, dtype=float)
    if len(names) < 2:
        raise UserError(f"expected at least 2 strategies, got {', '.join(names) or 'none'}")
    if any(np.shape(accuracy[name]) != rate.shape for name in names):
        raise UserError(f"each strategy needs one accuracy for each of the {len(rate)} problems")
    table = np.array([np.asarray(accuracy[name], dtype=float) for name in names])        # (S, P)
    if not ((table >= 0) & (table <= 1)).all():
        raise UserError("accuracies must lie in [0, 1]")
    of = quantile_bins(rate) if bins is None else np.asarray(bins)
    half = _halves(of, seed)
    chosen, alone = np.empty(len(rate)), np.empty(len(rate))      # each problem's accuracy, as the other half chose
    choices = []
    for k in (0, 1):
        alone[half != k] = table[int(table[:, half == k].mean(1).argmax()), half != k]
    for one in np.unique(of):
        here = of == one
        for k in (0, 1):
            mine, other = here & (half == k), here & (half != k)
            chosen[other] = table[int(table[:, mine].mean(1).argmax()), other]
        choices.append(_choice(names, table[:, here], rate[here], float(chosen[here].mean()), level, seed))
    gain, spread = chosen - alone, (chosen - alone).std(ddof=1) / np.sqrt(len(rate))
    reach = float(stdtrit(len(rate) - 1, (1 + level) / 2) * spread)
    mean, single = float(gain.mean()), names[int(table.mean(1).argmax())]
    return ByDifficulty(
        tuple(choices), float(chosen.mean()), wilson(float(chosen.mean()), len(rate), level), single,
        float(alone.mean()), (mean, mean - reach, mean + reach), level,
    )


def wilson(mean: float, count: int, level: float) -> tuple[float, float]:
    """Wilson's interval of a mean of `count` numbers in [0, 1]: for marks of 0 and 1, conservative for other numbers.

    Its width is above 0 even if every problem failed, as is likely in a bin of hard ones.
    """
    z = float(ndtri((1 + level) / 2))
    middle = (mean + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * np.sqrt(mean * (1 - mean) / count + z**2 / (4 * count**2))
    return float(max(middle - reach, 0.0)), float(min(middle + reach, 1.0))


def _halves(of: ndarray, seed: int) -> ndarray:
    """(P,) 0 or 1: each bin's problems in two random halves."""
    half = np.empty(len(of), dtype=np.int64)
    for i, one in enumerate(np.unique(of)):
        here = np.flatnonzero(of == one)
        if len(here) < 2:
            raise UserError(f"a bin has {len(here)} problem and needs at least 2: use fewer bins")
        order = chance.generator(seed, chance.Purpose.SPLIT, i).permutation(len(here))
        half[here[order]] = np.arange(len(here)) % 2
    return half


def _choice(
    names: list[str], table: ndarray, rate: ndarray, accuracy: float, level: float, seed: int
) -> StrategyChoice:
    best = int(table.mean(1).argmax())
    pairs = len(names) * (len(names) - 1) / 2
    rng = chance.generator(seed, chance.Purpose.BOOTSTRAP, table.shape[1])
    ties = tuple(
        name for i, name in enumerate(names)
        if i != best and _sign_flip_p(table[best] - table[i], rng) > (1 - level) / pairs
    )
    count = table.shape[1]
    bounds = (float(rate.min()), float(rate.max()))
    return StrategyChoice(bounds, count, names[best], accuracy, wilson(accuracy, count, level), ties)


def _sign_flip_p(difference: ndarray, rng: np.random.Generator) -> float:
    """The two-sided p-value of a sign-flip permutation test of mean 0: exact for few differences, else sampled."""
    moved = difference[difference != 0]
    if not len(moved):
        return 1.0
    if len(moved) <= EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((np.abs(signs @ moved) >= abs(moved.sum()) - 1e-12).mean())
    signs = 1 - 2 * rng.integers(0, 2, (FLIPS, len(moved)))
    return float((1 + (np.abs(signs @ moved) >= abs(moved.sum()) - 1e-12).sum()) / (1 + FLIPS))
