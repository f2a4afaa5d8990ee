"""Accuracy and cost of a strategy with n samples, from a pool of m: best-of, votes and early stop.

Best-of is exact over all n-subsets. Votes, early stop, and what begins with given
samples, are means over subsets that random orders of the samples give, unbiased and the same for the same pool. Ties
count in equal shares. n is at most m: what more samples give is not a function of the pool (`mixture` forecasts it
where the scorer is the verifier).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy import ndarray
from scipy.special import betainc

from isocost import chance
from isocost.errors import UserError
from isocost.laws.papers.inference import best_of
from isocost.planner.test_time.choice import paired
from isocost.planner.test_time.pool import Pool
from isocost.stats.intervals import Interval
from isocost.stats.ranking import auroc_within

ORDERS, BLOCKS = 32, 128    # random orders of each problem's samples, and subsets that are taken of them at most
SURE, BY = 0.95, 4  # of until-sure: the probability at which the leading answer ends it, and samples at a time
LATE = 0.95         # share of answers that are ready by the depth that is stated
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, eq=False)
class Measured:
    """A strategy with one size on P problems: (P,) accuracy, (P,) samples and (P,) tokens written for an answer.

    `depth` is the number of tokens written one after the other within which 95 % of the answers are ready. `how` is
    "pool", "live", "mixture" for a forecast beyond the pool, or "foretold". `runs` (seeds, P) are the accuracies of the
    runs of a policy, or draws of one that is foretold, and `accuracy` their mean.
    """

    strategy: str
    size: int
    accuracy: ndarray
    samples: ndarray
    tokens: ndarray
    depth: float
    how: str = "pool"
    arm: str = ""       # the policy, or the settings that it was sampled at, where they are not the study's
    runs: ndarray | None = None

    @property
    def label(self) -> str:
        """Strategy and size in one word."""
        return label(self.strategy, self.size, self.arm)


def over_runs(found: Sequence[Measured], arm: str) -> Measured:
    """The mean of a strategy with one size over the runs of a policy."""
    accuracy, samples, tokens = (np.array([getattr(m, k) for m in found]) for k in ("accuracy", "samples", "tokens"))
    return replace(found[0], accuracy=accuracy.mean(0), samples=samples.mean(0), tokens=tokens.mean(0),
                   depth=max(m.depth for m in found), arm=arm, runs=accuracy)


def label(strategy: str, size: int, arm: str = "") -> str:
    """A strategy with its size and arm in one word."""
    return ("one" if size == 1 else f"{strategy}-{size}") + (f"@{arm}" if arm else "")


@dataclass(frozen=True)
class Estimator:
    """How a strategy is measured on a pool, and what it needs of it: "score", "answer"."""

    needs: tuple[str, ...]
    measure: Callable[[Pool, ndarray], tuple[ndarray, ndarray]]     # of (P, blocks, n): accuracy (P,), samples taken
    rounds: bool = False        # it asks for `BY` samples at a time; else for all at once


def orders(pool: Pool, seed: int, first: int = 0) -> ndarray:
    """(P, ORDERS, m - first) random orders of each problem's samples from number `first` on."""
    rng = chance.generator(seed, chance.Purpose.BOOTSTRAP, pool.samples, 2)
    every = np.arange(first, pool.samples)
    return np.asarray(rng.permuted(np.broadcast_to(every, (len(pool.ids), ORDERS, len(every))), axis=2))


def measure(pool: Pool, strategy: str, size: int, order: ndarray, first: int = 0) -> Measured:
    """A strategy with one size, measured on a pool; it begins with the `first` samples, and `order` is of the others.

    Raises UserError for a size above the pool's, and for a strategy that needs what the pool lacks.
    """
    way = STRATEGIES[strategy]
    require(pool, strategy)
    if not 1 <= size <= pool.samples:
        raise UserError(f"{strategy}-{size}: the pool has {pool.samples} samples per problem; sample more")
    blocks = _blocks(order, size, first)
    if strategy == "best-of" and not first:
        assert pool.score is not None
        rows = zip(pool.score, pool.right, strict=True)
        accuracy, taken = np.array([best_of(*row, size) for row in rows]), np.array(size)
    else:
        accuracy, taken = way.measure(pool, blocks)
    tokens = pool.tokens if pool.tokens is not None else np.ones_like(pool.right)
    drawn = np.take_along_axis(tokens[:, None, :], blocks, 2)       # (P, blocks, size)
    at_once = BY if way.rounds else size
    depth = sum(drawn[:, :, t: t + at_once].max(2) * (taken > t) for t in range(0, size, at_once))
    samples = np.broadcast_to(taken, drawn.shape[:2]).mean(1)
    each = pool.written + (pool.scoring if pool.scoring is not None and "score" in way.needs else 0.0)
    return Measured(strategy, size, accuracy, samples, samples * each, float(np.quantile(depth, LATE)))


def _blocks(order: ndarray, size: int, first: int) -> ndarray:
    """(P, blocks, size) disjoint subsets of each order, behind the first samples."""
    problems, many, m = order.shape
    if size <= first:
        return np.broadcast_to(np.arange(size), (problems, 1, size))
    own = size - first
    blocks = order[:, :, : m // own * own].reshape(problems, many * (m // own), own)[:, :BLOCKS]
    before = np.broadcast_to(np.arange(first), (*blocks.shape[:2], first))
    return np.concatenate((before, blocks), 2)


def _best_of(pool: Pool, blocks: ndarray) -> tuple[ndarray, ndarray]:
    assert pool.score is not None
    score = np.take_along_axis(pool.score[:, None, :], blocks, 2)
    best = score == score.max(2, keepdims=True)
    right = (best * np.take_along_axis(pool.right[:, None, :], blocks, 2)).sum(2) / best.sum(2)
    return right.mean(1), np.array(blocks.shape[2])


def _vote(pool: Pool, blocks: ndarray, weighted: bool = False) -> tuple[ndarray, ndarray]:
    """The answer with the most votes, or the largest sum of scores, of each subset."""
    assert pool.answer is not None
    answers = np.take_along_axis(pool.answer[:, None, :], blocks, 2)
    count = votes = _tally(answers, (answers >= 0).astype(float), pool.classes.shape[1])
    if weighted:
        assert pool.score is not None
        voting = np.take_along_axis(pool.score[:, None, :], blocks, 2) * (answers >= 0)
        votes = _tally(answers, voting, pool.classes.shape[1])
    return _led(votes, count, pool), np.array(blocks.shape[2])


def _led(votes: ndarray, count: ndarray, pool: Pool) -> ndarray:
    """(P,) the mean reward of the answers that lead, ties in equal shares; 0 where no sample of a subset votes."""
    first = np.isclose(votes, votes.max(2, keepdims=True)) & (count > 0)
    share = (first * pool.classes[:, None, :]).sum(2) / np.maximum(first.sum(2), 1)
    return np.asarray(share.mean(1))


def _tally(answers: ndarray, weights: ndarray, size: int) -> ndarray:
    """(P, blocks, size) the sum of the weights of each answer."""
    problems, many, _ = answers.shape
    at = np.arange(problems * many).reshape(problems, many, 1) * size + np.maximum(answers, 0)
    return np.bincount(at.ravel(), weights.ravel(), problems * many * size).reshape(problems, many, size)


def _until_sure(pool: Pool, blocks: ndarray) -> tuple[ndarray, ndarray]:
    """`BY` samples at a time until the leader beats the second answer with probability `SURE`, Beta(lead + 1, second +
    1) above 1/2 (Aggarwal et al. 2023, arXiv 2305.11860), at most all of a block."""
    assert pool.answer is not None
    answers = np.take_along_axis(pool.answer[:, None, :], blocks, 2)
    size, votes = blocks.shape[2], np.zeros((*answers.shape[:2], pool.classes.shape[1] + 1))    # a second always is
    going, taken = np.ones(answers.shape[:2], dtype=bool), np.zeros(answers.shape[:2])
    for t in range(0, size, BY):
        some = answers[:, :, t: t + BY]
        votes[:, :, :-1] += _tally(some, (some >= 0) * going[:, :, None].astype(float), pool.classes.shape[1])
        taken += going * some.shape[2]
        second, lead = np.moveaxis(np.partition(votes, -2, axis=2)[:, :, -2:], 2, 0)
        going &= (betainc(lead + 1, second + 1, 0.5) > 1 - SURE) | (lead == 0)
    return _led(votes[:, :, :-1], votes[:, :, :-1], pool), taken


STRATEGIES: Mapping[str, Estimator] = {
    "best-of": Estimator(("score",), _best_of),
    "vote": Estimator(("answer",), _vote),
    "weighted-vote": Estimator(("answer", "score"), partial(_vote, weighted=True)),
    "until-sure": Estimator(("answer",), _until_sure, rounds=True),
}


def possible(pool: Pool) -> tuple[str, ...]:
    """The strategies that the pool has all of the needs of."""
    return tuple(k for k, s in STRATEGIES.items() if all(getattr(pool, x) is not None for x in s.needs))


def require(pool: Pool, strategy: str) -> None:
    """Raises UserError for a strategy that the pool does not suffice for."""
    if lack := next((x for x in STRATEGIES[strategy].needs if getattr(pool, x) is None), None):
        others = f"; {', '.join(able)} need none" if (able := possible(pool)) else ""
        hint = ", or --scorer verifier if the verifier is at hand for every answer" if lack == "score" else ""
        raise UserError(f"{strategy} needs the {lack} of each sample, which the file lacks: name its column with --map "
                        f"{lack}=COLUMN{hint}{others}")


def table(pool: Pool, strategies: Sequence[str], sizes: Sequence[int], seed: int) -> list[Measured]:
    """Every strategy with every size that the pool has: one sample first, then by strategy and size."""
    order = orders(pool, seed)
    written, ones = pool.written, np.ones(len(pool.ids))
    tokens = ones if pool.tokens is None else pool.tokens
    one = Measured("one", 1, pool.right.mean(1), ones, written, float(np.quantile(tokens, LATE)))
    return [one, *(measure(pool, s, k, order) for s in strategies for k in sizes if 1 < k <= pool.samples)]


def auroc(score: ndarray, right: ndarray) -> Interval | None:
    """The probability that a right sample scores above a wrong one of the same problem, ties as halves: the mean over
    the problems that have both, with its interval over problems; None with fewer than two such problems."""
    each = auroc_within(list(zip(score, right >= 0.5, strict=True)))
    if len(each) < 2:
        return None
    found = paired(each)
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))
