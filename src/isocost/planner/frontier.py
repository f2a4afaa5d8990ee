"""Train or infer: what a budget buys as training and as samples per answer, on one axis of cost.

A pair of a policy and a strategy costs C + Q c for Q answers: C to train the policy, c to answer once, in one unit
(FLOP, seconds or money). For each Q the pairs that no other one beats in both cost and accuracy make a staircase. The
number of answers from which more training pays, for a wanted accuracy a, is

    Q*(a) = (C' - C) / (c(a) - c'(a)),

with c(a) the least cost of an answer at which the policy reaches a by any strategy, and primes for the policy that was
trained longer. Snell et al. 2024 (arXiv 2408.03314, section 7) ask the question of pretraining; here it is asked of RL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.stats.power import LEVEL

DRAWS = 1000        # of the bootstrap over problems and seeds of training
SURE = 0.9          # share of the draws in which a choice must be the cheapest to be called decided


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A policy with a strategy. `training` and `answer` are costs; right: the chance of a right answer, with draws in
    place of seeds where the policy is `foretold`."""

    policy: str
    strategy: str
    training: float
    answer: float
    right: Float[ndarray, "seeds problems"]
    foretold: bool = False

    def __post_init__(self) -> None:
        if self.right.ndim != 2 or not self.right.size or not np.isfinite(self.right).all():
            raise UserError(f"{self.name}: expected a finite table (seeds, problems), got shape {self.right.shape}")
        if not (self.training >= 0 and self.answer > 0):
            raise UserError(f"{self.name}: training costs at least 0 and an answer more, got {self.training:g} and "
                            f"{self.answer:g}")

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.policy}, {self.strategy}"

    @property
    def accuracy(self) -> float:
        """Mean over seeds and problems."""
        return float(self.right.mean())

    def cost(self, answers: float) -> float:
        """Of its training and this many answers."""
        return self.training + answers * self.answer


@dataclass(frozen=True)
class BreakEven:
    """Answers from which training the next policy pays; inf if it never does. None: one of them does not reach it."""

    accuracy: float
    answers: float | None
    interval: tuple[float, float] | None


class PolicyFrontier:
    """Pairs whose policies were measured on the same problems.

    Accuracies are drawn again by a bootstrap over problems, shared by all pairs, and over the seeds of each policy,
    shared by its strategies. Raises UserError for pairs of different problems, or without any.
    """

    def __init__(self, pairs: Sequence[Pair], *, seed: int = 0, draws: int = DRAWS):
        if not pairs:
            raise UserError("train or infer: no pair of a policy and a strategy was measured")
        if len({p.right.shape[1] for p in pairs}) > 1:
            sizes = ", ".join(f"{p.name}: {p.right.shape[1]}" for p in pairs)
            raise UserError(f"train or infer: every pair needs the same problems, got {sizes}")
        self.pairs = tuple(pairs)
        rng = generator(seed, Purpose.BOOTSTRAP, draws)
        count = pairs[0].right.shape[1]
        problems = rng.multinomial(count, np.full(count, 1 / count), size=draws) / count        # (draws, problems)
        weights: dict[str, ndarray] = {}        # of a policy's seeds: (draws, seeds)
        for p in pairs:
            seeds = len(p.right)
            if p.policy not in weights:
                many = 1 if p.foretold else seeds       # a draw is one possible policy; seeds have a mean
                weights[p.policy] = rng.multinomial(many, np.full(seeds, 1 / seeds), size=draws) / many
            if weights[p.policy].shape[1] != seeds:
                raise UserError(
                    f"{p.name}: {seeds} seeds, but another strategy of it has {weights[p.policy].shape[1]}")
        self.drawn = np.array([((weights[p.policy] @ p.right) * problems).sum(1) for p in pairs])  # (pairs, draws)
        ahead = [i for i, p in enumerate(pairs) if p.foretold]
        self.drawn[ahead] = np.clip(self.drawn[ahead], 0, 1)        # a straight line may leave the range

    @property
    def policies(self) -> list[str]:
        """By cost of training."""
        return list(dict.fromkeys(p.policy for p in sorted(self.pairs, key=lambda p: p.training)))

    def interval(self, pair: Pair, level: float = LEVEL) -> tuple[float, float]:
        """Of a pair's accuracy, over problems and seeds."""
        at = next(i for i, p in enumerate(self.pairs) if p is pair)
        low, high = np.quantile(self.drawn[at], [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def staircase(self, answers: float, least: float = 0.0) -> list[Pair]:
        """The pairs that no other one beats in cost and accuracy, by cost; each gains more than `least`."""
        steps: list[Pair] = []
        for p in sorted(self.pairs, key=lambda p: (p.cost(answers), -p.accuracy)):
            if not steps or p.accuracy > steps[-1].accuracy + least:
                steps.append(p)
        return steps

    def better(self, pair: Pair, answers: float) -> float:
        """The share of the draws in which no pair that is cheaper is as accurate."""
        at = next(i for i, p in enumerate(self.pairs) if p is pair)
        cheaper = [i for i, p in enumerate(self.pairs) if p.cost(answers) < pair.cost(answers)]
        return float((self.drawn[at] > self.drawn[cheaper].max(0, initial=-inf)).mean())

    def chosen(self, rule: Callable[[ndarray, ndarray], int], answers: float) -> dict[str, float]:
        """The share of the draws in which a rule, of (pairs,) accuracies and costs of an answer, takes each policy."""
        costs = np.array([p.cost(answers) / answers for p in self.pairs])
        picked = [self.pairs[rule(drawn, costs)].policy for drawn in self.drawn.T]
        return {name: picked.count(name) / len(picked) for name in self.policies}

    def break_even(
        self, less: str | Sequence[str], more: str, wanted: float | Pair, level: float = LEVEL
    ) -> BreakEven:
        """From how many answers the training of `more` pays, if this accuracy is wanted, with its interval.

        `less` is a policy, or several, of which all are to be more expensive. What a pair reaches is wanted in each
        draw as it is in that draw.
        """
        others = [less] if isinstance(less, str) else list(less)
        at = next((i for i, p in enumerate(self.pairs) if p is wanted), 0)
        accuracy, drawn = (wanted.accuracy, self.drawn[at]) if isinstance(wanted, Pair) else (wanted, wanted)
        means = np.array([[p.accuracy] for p in self.pairs])
        own = max(self._answers(name, more, accuracy, means)[0] for name in others)
        if np.isnan(own):
            return BreakEven(accuracy, None, None)
        every = np.maximum.reduce([self._answers(name, more, drawn, self.drawn) for name in others])
        known = every[~np.isnan(every)]
        low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
        return BreakEven(accuracy, float(own), (float(low), float(high)))

    def _answers(self, less: str, more: str, accuracy: float | ndarray, table: ndarray) -> ndarray:
        """Q* for each column of accuracies (pairs, draws): 0 where only the longer trained policy reaches it, NaN where
        it does not reach it."""
        def least(policy: str) -> tuple[float, ndarray]:
            own = [i for i, p in enumerate(self.pairs) if p.policy == policy]
            costs = np.array([self.pairs[i].answer for i in own])[:, None]
            return self.pairs[own[0]].training, np.where(table[own] >= accuracy, costs, inf).min(0)

        (before, a), (after, b) = least(less), least(more)
        with np.errstate(invalid="ignore", divide="ignore"):
            answers = np.where(a > b, (after - before) / (a - b), inf)
        return np.where(np.isinf(b), np.nan, answers)
