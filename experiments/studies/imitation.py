"""Data scaling in imitation: environments against demonstrations.
An environment is a point of the unit square; 16 decisions each have two right actions, divided by a random line. An
expert demonstrates all decisions and errs in 20 % of them. Imitation takes the majority of the nearest demonstrated
environment. The gap is the share of wrong decisions in 2,000 new environments. Environments grow from 4 to 128 with 9
demonstrations in each, and demonstrations from 1 to 33 in 16 environments. The law is gap = β Xᵅ, a line in
logarithms. The nearest of X uniform points is at a distance of order X^(−1/2), so α = −1/2 where majorities are right.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray

from experiments.studies import Question
from isocost.chance import Purpose, generator
from isocost.laws.papers.data import fit_gap

PAPER = ("Data scaling laws in imitation learning", "2410.18647")
QUESTIONS = (
    Question("Is the correlation of logarithms over environments below −0.97?", "line", below=-0.97, effect=0.01),
    Question("Is α over environments within 0.1 of −1/2 (distance)?", "power", below=0.1, effect=0.03),
    Question("Is α over demonstrations nearer to 0 than over environments (difference)?", "flatter", above=0.0,
             effect=0.05),
    Question("Does the law of 4 to 32 environments forecast the gap at 128 to 15 % (absolute)?", "ahead", below=0.15,
             effect=0.03),
    Question("At 144 demonstrations, is the gap less in 48 environments than in 16?", "spread", below=0.0,
             effect=0.01),
)
ERROR, DECISIONS, MANY, FEW = 0.2, 16, (4, 8, 16, 32, 64, 128), (1, 3, 9, 33)
MOST = 40


def gap(lines: ndarray, environments: int, demonstrations: int, rng: np.random.Generator) -> float:
    """The share of wrong decisions in new environments; lines (decisions, 3) divide the right actions."""
    known, new = rng.random((environments, 2)), rng.random((2000, 2))
    wrong = rng.binomial(demonstrations, ERROR, (environments, len(lines)))
    taught = right(lines, known) ^ (2 * wrong > demonstrations)
    nearest = ((new[:, None] - known) ** 2).sum(-1).argmin(1)
    return float((taught[nearest] != right(lines, new)).mean())


def right(lines: ndarray, at: ndarray) -> ndarray:
    """(environments, decisions) the right actions."""
    return at @ lines[:, :2].T + lines[:, 2] > 0


def measure(seed: int) -> Mapping[str, float]:
    rng = generator(seed, Purpose.ENVIRONMENT, 5)
    turn, through = rng.random(DECISIONS) * 2 * np.pi, 0.25 + rng.random((DECISIONS, 2)) / 2
    normal = np.stack((np.cos(turn), np.sin(turn)), 1)
    lines = np.concatenate((normal, -(normal * through).sum(1, keepdims=True)), 1)

    def mean(environments: int, demonstrations: int) -> float:
        return float(np.mean([gap(lines, environments, demonstrations, rng) for _ in range(10)]))

    more, longer = [mean(m, 9) for m in MANY], [mean(16, d) for d in FEW]
    law, early = (fit_gap(np.array(MANY[:k]), 1 - np.array(more[:k])) for k in (6, 4))
    demonstrations = fit_gap(np.array(FEW), 1 - np.array(longer)).alpha
    return {"line": law.correlation, "power": abs(law.alpha + 0.5), "flatter": demonstrations - law.alpha,
            "ahead": abs(float(1 - early(128)) / more[-1] - 1), "spread": mean(48, 3) - mean(16, 9)}
