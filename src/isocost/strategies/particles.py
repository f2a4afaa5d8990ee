"""Particle filtering: texts are resampled after each step in proportion to the odds of their scores.

    w_i ∝ (s_i / (1 − s_i))^{1/τ},  s_i = s(x, y_i) after k steps;   n texts are drawn from these, and go on
    twist: w_i divided by the weight after k − 1 steps. Then the mean weights' product has expectation E_π[w(y)]
    Gibbs: again `iterations` − 1 times, each time with one path kept, drawn from the last iteration's ends
    Puri et al. 2025, arXiv:2502.01618; twists: Zhao et al. 2024, arXiv:2404.17546
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from isocost import chance
from isocost.errors import UserError
from isocost.scorers import Scorer, steps
from isocost.seams import Pace
from isocost.strategies import Card, vote
from isocost.strategies.paths import Answer, Path, searched, voted
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Particle filtering", "2502.01618", 2025, "beam", "It beats beam search where the scorer is noisy.")
LEAST = 1e-6        # scores are limited to [LEAST, 1 - LEAST], so that odds are finite


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", tau="(0, inf)", iterations="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, scorer: Scorer = steps.score, tau: float = 1.0,
    step: str = "", choose: str = "best", twist: bool = False, iterations: int = 1,
) -> list[Rollout]:
    """`n` particles, resampled after each step (systematic resampling); the end that `choose` names is the answer.

    `choose`: "best" score, "vote", "weighted" vote, or "sample" in proportion to the weights. The rollout's note
    `evidence` is the logarithm of the product of the mean weights, of the last iteration.
    """
    if choose not in CHOICES:
        raise UserError(f"particles: choose is one of {', '.join(CHOICES)}; not {choose!r}")

    async def search(answer: Answer, first: Segment) -> Rollout:
        rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, answer.attempt)
        kept: Path | None = None
        for _ in range(iterations):
            ends, w, evidence = await _filtered(answer, first, n, kept, rng, tau, twist, step)
            kept = ends[_drawn(w, rng)] if w.any() else None
        ranked = [ends[i] for i in (CHOICES[choose](ends) if kept is not None and choose != "sample" else [])]
        return answer.end(next(iter(ranked), kept), ends[0], evidence=evidence)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)


async def _filtered(
    answer: Answer, first: Segment, n: int, kept: Path | None, rng: Generator, tau: float, twist: bool, step: str,
) -> tuple[list[Path], ndarray, float]:
    """The particles when all are over, their last weights, and the log of the product of the mean weights.

    With a path that is kept, that is the first particle, as it was after each step, and is never dropped (Andrieu et
    al. 2010, conditional sequential Monte Carlo).
    """
    live, evidence, done = answer.begin(first, n - (kept is not None)), 0.0, 0
    while True:
        live, done = await answer.advance(live, step), done + 1
        there = live if kept is None else [kept.after(done), *live]
        w = weights(there, tau)
        if twist and done > 1:
            before = weights([p.after(done - 1) for p in there], tau)
            w = np.divide(w, before, out=np.zeros_like(w), where=before > 0)
        evidence += log(w.mean()) if w.any() else -inf
        if all(p.over for p in there) or not w.any():
            return there, w, evidence
        counts = np.bincount(_systematic(w, rng) if kept is None else rng.choice(n, n - 1, p=w / w.sum()), minlength=n)
        if kept is not None:
            live = answer.branch(there[0], int(counts[0]), others=True)
            there, counts = there[1:], counts[1:]
        else:
            live = []
        live += [p for path, k in zip(there, counts.tolist(), strict=True) if k for p in answer.branch(path, k)]


def weights(paths: Sequence[Path], tau: float) -> ndarray:
    """(paths,) the odds of the scores, to the power 1 / tau; 0 without a score. Odds of 0.9 to 0.1 are 81 to 1."""
    r = np.clip([p.value for p in paths], LEAST, 1 - LEAST)
    return np.where([p.score is None for p in paths], 0.0, (r / (1 - r)) ** (1 / tau))


def _systematic(w: ndarray, rng: Generator) -> ndarray:
    """As many indices as weights, each i at least ⌊n w_i / Σ w⌋ times (Kitagawa 1996)."""
    at = (rng.random() + np.arange(len(w))) / len(w)
    return np.minimum(np.searchsorted(np.cumsum(w / w.sum()), at, side="right"), len(w) - 1)


def _drawn(w: ndarray, rng: Generator) -> int:
    return int(rng.choice(len(w), p=w / w.sum()))


def _by_vote(ends: Sequence[Path], weighted: bool) -> list[int]:
    said, found = [voted(p.rollout) for p in ends], [p.score for p in ends]
    chosen = vote.choose(said, found, n=len(ends), scorer=steps.score if weighted else None).chosen
    return [] if chosen is None else [chosen]


CHOICES: dict[str, Callable[[Sequence[Path]], list[int]]] = {
    "best": lambda ends: [max(range(len(ends)), key=lambda i: ends[i].value)],
    "vote": lambda ends: _by_vote(ends, False),
    "weighted": lambda ends: _by_vote(ends, True),
    "sample": lambda ends: [],
}
