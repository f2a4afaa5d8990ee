"""Rollout-GDRO: sort problems by pass rate, and give each bin the rollouts that minimise the variance.

    min_n Σ_b q̂_b v_b / n_b   s.t.   Σ_b q̂_b n_b = n̄,   n_b whole;   left real, n_b ∝ √v_b
    Panaganti et al. 2026, arXiv:2601.19280
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, grpo
from isocost.parts import allocate as allocation
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Rollout-GDRO", "2601.19280", 2026, "grpo", "Rollouts teach more where outcomes are uncertain.")


@trait("tracks_pass_rate")
@bounds(least="[1, inf)", most="[1, inf)", bins="[1, inf)", k="[1, inf)", window="[1, inf)", margin="[0, 1]")
def allocate(
    problems: Sequence[Problem], ledger: Ledger, total: int, *,
    least: int = 2, most: float = 4.0, bins: int = 10, k: int = 8, window: int = 16, margin: float = 0.02,
) -> list[int]:
    """One count for each difficulty bin, which minimises the variance of the group means (arXiv:2601.19280).

    The counts minimise Σ_b m_b v_b / n_b, where m_b is the number of problems of bin b in this wave and v_b their mean
    p(1 − p), over integer n_b from `least` to `most` times the average, subject to Σ_b m_b n_b = total exactly. Without
    the integer constraint, n_b ∝ √v_b.
    """
    known = allocation.bins(ledger, count=bins, k=k, window=window, margin=margin)
    where = [known.of.get(p.id, allocation.UNSEEN) for p in problems]
    rates = [known.rate(p.id) for p in problems]
    size = Counter(where)
    spread = {b: sum(p * (1 - p) for p, at in zip(rates, where, strict=True) if at == b) / size[b] for b in size}
    average, over = divmod(total, len(problems))
    arms = range(min(least, average), ceil(most * average) + 1)
    chosen = best_numbers(size, spread, arms, total - over)
    return [chosen[b] + more for b, more in zip(where, allocation.equal(problems, ledger, over), strict=True)]


def best_numbers(
    size: Mapping[int, int], spread: Mapping[int, float], arms: Sequence[int], total: int
) -> dict[int, int]:
    """The n_b in `arms` with the least Σ_b size_b spread_b / n_b where Σ_b size_b n_b = total, by dynamic programming.

    Ties go to the fewest attempts for the lowest bins. Raises ValueError if no choice meets the total.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for b in sorted(size):
        grown: dict[int, tuple[float, tuple[int, ...]]] = {}
        for spent, (cost, chosen) in best.items():
            for n in arms:
                at, here = spent + size[b] * n, (cost + size[b] * spread[b] / n, (*chosen, n))
                if at <= total and (at not in grown or here < grown[at]):
                    grown[at] = here
        best = grown
    if total not in best:
        raise ValueError(f"no numbers from {arms[0]} to {arms[-1]} for bins of {dict(size)} problems sum to {total}")
    return dict(zip(sorted(size), best[total][1], strict=True))


def recipe(**changes: Any) -> Recipe:
    # The paper learns the value of each n_b with a bandit, from the surrogate at the n_b played, and prices rollouts
    # with a multiplier. On fresh rollouts that surrogate is 0 at every n, and under an exact budget the price is the
    # same for all choices. What remains is its theory's proxy, v_b / n_b, known for all n_b at once: the dynamic
    # program over it is the paper's, the bandit is not implemented. v is p(1 − p), with p from a flat prior, so that a
    # bin with no right attempt still gets rollouts.
    by_bin = partial(allocate, least=2, most=4.0, bins=10, k=8, window=16, margin=0.02)
    return grpo.recipe(name="rolloutgdro", allocate=by_bin).but(**changes)
