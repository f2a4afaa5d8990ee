"""Balanced online difficulty filtering: train on groups that are right about half the time; sample until B are.

    keep x  iff  T_low ≤ p̂(x) ≤ T_high,   p̂(x) the share right of its n rollouts
    KL(π_0 ‖ π*) = log(1 − p + p e^{1/β}) − p/β ≈ p(1 − p) / (2β²): what there is to learn is most at p = ½
    Bae, Hong et al. 2025, arXiv:2504.03380
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil, comb, floor
from typing import TYPE_CHECKING, Any

from isocost.methods import FAILS, HOLDS, Card, grpo
from isocost.parts.select import mark
from isocost.seams import Recipe
from isocost.traits import bounds
from isocost.types import Group

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card(
    "Balanced difficulty filtering", "2504.03380", 2025, "grpo",
    "Groups that are half right improve the policy most per update.",
)

LOW, HIGH = 0.25, 0.75   # the paper compares symmetric bands; p(1 − p) is at least 3/4 of its maximum in this one
LEAST_HELD = 0.1         # least share of groups in the band: below it a step needs more than ten waves
SIZE = 8                 # n at which that share is computed


@bounds(low="[0, 1]", high="[0, 1]")
def select(group: Group, ledger: Ledger, *, low: float = 0.25, high: float = 0.75) -> Group | None:
    """The group if its share of right attempts is in [low, high] and not all are equal; else nothing
    (arXiv:2504.03380).

    Right is the verifier's mark, whatever the reward made of it.
    """
    right = [mark(r) for r in group.rollouts if r.score is not None]
    held = low <= sum(right) / max(len(right), 1) <= high and len(set(right)) > 1
    return group if held else None


def held(rate: float, size: int = SIZE) -> float:
    """Probability that a group of a problem with this pass rate is within the band."""
    within = range(ceil(LOW * size), floor(HIGH * size) + 1)
    return sum(comb(size, k) * rate**k * (1 - rate) ** (size - k) for k in within)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """A band that is not empty: at least one group in ten has a share right between the two thresholds."""
    state, why = grpo.needs(profile)
    if state != HOLDS:
        return state, why
    counts = profile["histogram"]
    share = sum(c * held(k / (len(counts) - 1)) for k, c in enumerate(counts)) / sum(counts)
    waves = f"{1 / share:.1f} waves fill a step" if share else "no number of waves fills a step"
    return HOLDS if share >= LEAST_HELD else FAILS, f"{share:.0%} of groups of {SIZE} would be kept: {waves}"


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(name="balanced", select=partial(select, low=LOW, high=HIGH), refill=True).but(**changes)
