"""DOTS with rollout replay: choose problems of a predicted pass rate near ½, and train on mixed groups again.

    p̂ = σ(w logit(Σ_j softmax_j(q·k_j/τ_a) r_j) + b)          x drawn ∝ exp(−|p̂(x) − α| / τ), without replacement
    a batch is σ fresh and 1 − σ remembered mixed groups, their ratios π_θ / π_sampler as stored
    Sun et al. 2025, arXiv:2506.05316
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost.methods import Card, grpo
from isocost.parts import improve
from isocost.parts.choose import first
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("DOTS with rollout replay", "2506.05316", 2025, "grpo", "Equal reward for about half of the sampling.")


def trigrams(problem: Problem) -> ndarray:
    """(256,) hashed counts of character triples, normalised to length 1; or `meta["embedding"]` if present."""
    given = problem.meta.get("embedding")
    return _trigrams(problem.text) if given is None else _unit(np.asarray(given, dtype=np.float64))


@trait("tracks_pass_rate")
@bounds(aim="[0, 1]", spread="(0, inf)", probes="[0, 1]", references="[1, inf)", sharpness="(0, inf)")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    aim: float = 0.5, spread: float = 1e-3, probes: float = 1 / 3, references: int = 256, sharpness: float = 0.05,
    embed: Callable[[Problem], ndarray] = trigrams,
) -> list[Problem]:
    """Drawn without replacement by exp(−|p − aim| / spread), p being a predicted pass rate (DOTS, arXiv:2506.05316).

    The share `probes` of a wave is drawn uniformly instead: otherwise the prediction would only learn from problems
    that it prefers. They are trained on as well, because they are paid for.
    """
    guess = predicted(pool, ledger, references=references, sharpness=sharpness, embed=embed)
    order = -np.abs(guess - aim) / spread + rng.gumbel(size=len(pool))
    order[rng.permutation(len(pool))[: round(probes * count)]] = np.inf
    return first(pool, np.argsort(-order, kind="stable"), count)


def predicted(
    pool: Sequence[Problem], ledger: Ledger, *,
    references: int, sharpness: float, embed: Callable[[Problem], ndarray],
) -> ndarray:
    """(P,) predicted pass rates of problems, from the latest ones that were sampled (DOTS, arXiv:2506.05316).

    The `references`, the latest sampled problems, are the keys of an attention over embeddings, their latest mean
    rewards its values: p = softmax(cos(q, k) / sharpness) · r. Then p ← σ(w logit p + b), with w and b fitted to
    predict each reference from the others. A reference has its own latest mean reward; 0.5 if nothing was sampled yet.
    """
    tallies = [ledger.of(p.id) for p in pool]
    known = sorted((i for i, t in enumerate(tallies) if t.recent), key=lambda i: -tallies[i].last)[:references]
    if not known:
        return np.full(len(pool), 0.5)
    points = np.stack([embed(p) for p in pool])
    values = np.clip([tallies[i].recent[-1] for i in known], 0.0, 1.0)
    alike = points @ points[known].T / sharpness
    guess = _attend(alike, values)
    if len(known) > 1:
        others = alike[known]
        np.fill_diagonal(others, -np.inf)
        w, b = calibration(_attend(others, values), values)
        guess = _logistic(w * _logit(guess) + b)
    guess[known] = values
    return guess


def _attend(alike: ndarray, values: ndarray) -> ndarray:
    weight = np.exp(alike - alike.max(1, keepdims=True))
    return weight @ values / weight.sum(1)


def calibration(guess: ndarray, truth: ndarray, *, steps: int = 50) -> tuple[float, float]:
    """w ≥ 0 and b with the least cross-entropy of σ(w logit(guess) + b) to `truth`, by damped Newton steps.

    A quadratic with the weight of one observation pulls towards (1, 0), no calibration. A guess that is worse than none
    gets w = 0, and b is the logit of the mean.
    """
    x = np.stack([_logit(guess), np.ones(len(guess))], 1)
    at = none = np.array([1.0, 0.0])
    for _ in range(steps):
        p = _logistic(x @ at)
        slope = x.T @ (p - truth) + (at - none)
        curve = (x * (p * (1 - p))[:, None]).T @ x + np.eye(2)
        move = np.linalg.solve(curve, slope)
        at = at - move / max(1.0, float(np.linalg.norm(move)) / 0.5)
    return (float(at[0]), float(at[1])) if at[0] > 0 else (0.0, float(_logit(truth.mean())))


def _logit(p: ndarray) -> ndarray:
    p = p.clip(1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


def _logistic(x: ndarray) -> ndarray:
    return 1 / (1 + np.exp(-x.clip(-30, 30)))


@lru_cache(maxsize=2**14)
def _trigrams(text: str) -> ndarray:
    text, counts = f"\x02{text}\x03", np.zeros(256)
    for i in range(len(text) - 2):
        counts[zlib.crc32(text[i : i + 3].encode()) % 256] += 1
    return _unit(counts)


def _unit(x: ndarray) -> ndarray:
    return x / max(float(np.linalg.norm(x)), 1e-12)


def recipe(**changes: Any) -> Recipe:
    # 256 references for 512 chosen problems: a third. Their keys are hashed trigrams, or meta["embedding"] where
    # problems have it; the paper's trained adapter over a frozen model is not implemented.
    chosen = partial(
        choose, aim=0.5, spread=1e-3, probes=1 / 3, references=256, sharpness=0.05, embed=trigrams
    )
    learn = partial(improve.replayed, fresh=0.5, room=512, inner=improve.policy)
    # Groups of an update: 8 fresh, 8 remembered.
    return grpo.recipe(name="dots", choose=chosen, improve=learn, groups=8).but(**changes)
