"""VADE: keep a posterior of every problem's pass rate, and choose the problems with the most to learn.

    p_i ~ Beta(α_0 + a_i, β_0 + b_i)          top B of p_i (1 − p_i)²
    (a_i, b_i) ← λ_s (a_i, b_i) + (right, wrong)  if posed,   λ_g (a_i, b_i)  if not
    Hu et al. 2025, arXiv:2511.18902
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.methods import Card, grpo
from isocost.parts.choose import first
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card(
    "VADE", "2511.18902", 2025, "grpo",
    "Choosing by a discounted posterior leaves fewer groups with equal rewards.",
)


@trait("tracks_pass_rate")
@bounds(lean="[0, inf)", right="(0, inf)", wrong="(0, inf)", touched="[0, 1]", idle="[0, 1]")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    lean: float = 2.0, right: float = 1.0, wrong: float = 1.0, touched: float = 0.5, idle: float = 0.99,
) -> list[Problem]:
    """The `count` problems with the largest p (1 − p)^lean, with p drawn from each problem's posterior (VADE).

    Posteriors are Beta(right + a, wrong + b), where a and b count right and wrong attempts. Old counts are multiplied
    by `touched` in a step with new attempts at the problem, and by `idle` in every other step. The score is largest at
    p = 1 / (1 + lean).
    """
    known = beliefs(ledger, touched=touched, idle=idle)
    counts = np.array([known.get(p.id, (0.0, 0.0)) for p in pool])
    p = rng.beta(right + counts[:, 0], wrong + counts[:, 1])
    return first(pool, np.argsort(-p * (1 - p) ** lean, kind="stable"), count)


def beliefs(ledger: Ledger, *, touched: float, idle: float) -> dict[str, tuple[float, float]]:
    """Discounted (right, wrong) counts of every problem that was sampled.

    Counts are multiplied by `touched` when the problem is sampled again, before the new counts are added, and by `idle`
    in every step in which it is not. With both at 1 these are plain counts, and a Beta prior plus them is the exact
    posterior.
    """
    known = ledger.fold(partial(_believe, touched=touched, idle=idle), Beliefs())
    return {k: (a * idle ** (known.steps - t), b * idle ** (known.steps - t)) for k, (a, b, t) in known.counts.items()}


def _believe(known: Beliefs, seen: Sequence[Seen], *, touched: float, idle: float) -> Beliefs:
    fresh: dict[str, tuple[float, float]] = {}
    for s in seen:
        if not s.variant:
            right, wrong = fresh.get(s.id, (0.0, 0.0))
            gained = s.right
            fresh[s.id] = right + gained, wrong + len(s.rewards) - gained
    for name, (right, wrong) in fresh.items():
        a, b, at = known.counts.get(name, (0.0, 0.0, known.steps))
        keep = touched * idle ** (known.steps - at)
        known.counts[name] = keep * a + right, keep * b + wrong, known.steps + 1
    known.steps += 1
    return known


@dataclass
class Beliefs:
    """Right and wrong attempts per problem, discounted by age."""

    steps: int = 0
    counts: dict[str, tuple[float, float, int]] = field(default_factory=dict)   # right, wrong, as of which step


def recipe(**changes: Any) -> Recipe:
    # lean: the published form, largest at 1/3; 1 is the variance, largest at 1/2. The decays are not published: n
    # attempts determine a changing rate almost fully, so a second visit halves the weight of the first; a problem that
    # is not visited loses half its weight in 70 steps, about the time in which a policy changes.
    chosen = partial(choose, lean=2.0, right=1.0, wrong=1.0, touched=0.5, idle=0.99)
    return grpo.recipe(name="vade", choose=chosen).but(**changes)
