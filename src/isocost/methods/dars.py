"""DARS: sample every problem once, then give more rollouts to problems where few were right.

    Σ|A| = N · S(a),  S(a) = 2a(1 − a)          ΔN = ⌈(N/2 − N S(a)) / S(a)⌉ for a < ½, N + ΔN ≤ N_max; else 0
    A_i = r_i − mean r over both looks          a = 0 counts as ½/N          Yang et al. 2025, arXiv:2508.13755
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, drgrpo
from isocost.parts import select
from isocost.parts.allocate import equal
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("DARS, equal treatment", "2508.13755", 2025, "drgrpo", "Depth for hard problems raises pass@k.")


@trait("phased")
@trait("favours_rare", std=False)
@bounds(first="(0, 1]", most="[1, inf)")
def allocate(
    problems: Sequence[Problem], ledger: Ledger, total: int, *,
    first: float = 0.5, most: int = 32, hard: bool = False, std: bool = False,
) -> Generator[list[int], list[Group], None]:
    """Two phases: equal counts first, then more for problems where few attempts were right (DARS, arXiv:2508.13755).

    The share `first` of the wave is distributed equally, N each; `missing` gives how many more a problem needs, up to
    `most` in all. The rest of the wave is distributed by that: in proportion if it does not suffice; a surplus goes to
    all equally, so the sum is exactly `total`. The second phase waits for the slowest attempt of the first.
    """
    each = max(int(first * total) // len(problems), 1)
    groups = yield [each] * len(problems)
    needs_of = [missing(_right(g), each, most=most, hard=hard, std=std) for g in groups]
    left = total - each * len(problems)
    over = max(left - sum(needs_of), 0)
    if left:
        dealt = zip(in_proportion(needs_of, left - over), equal(problems, ledger, over), strict=True)
        yield [a + b for a, b in dealt]


def missing(rate: float, first: int, *, most: int, hard: bool = False, std: bool = False) -> int:
    """Attempts that a problem needs beyond its `first`, so that Σ|A| equals that of a problem half right.

    In a group of N with share a right, Σ|A| = N · 2a(1 − a), at most N/2 (with `std`, divided by the spread: N · 2√(a(1
    − a)), at most N). The target is that maximum, or 2(1 − a) times it if `hard`; none right counts as half an attempt
    right. A problem with half or more right needs none.
    """
    if rate >= 0.5:
        return 0
    a = max(rate, 0.5 / first)
    per = 2 * (a * (1 - a)) ** (0.5 if std else 1.0)
    aim = first * (1.0 if std else 0.5) * (2 * (1 - a) if hard else 1.0)
    return max(min(ceil((aim - first * per) / per - 1e-9), most - first), 0)


def _right(group: Group) -> float:
    """Share right by the verifier's marks, where the reward was shaped too; 0.5 if nothing has a score."""
    values = [r.mark.value if r.mark else r.score.value for r in group.rollouts if r.score]
    return sum(min(max(x, 0.0), 1.0) for x in values) / len(values) if values else 0.5


def in_proportion(needs_of: Sequence[int], total: int) -> list[int]:
    """`total`, shared in proportion to the needs by largest remainder; ties to the first. The sum is exact."""
    if not total:
        return [0] * len(needs_of)
    whole = [divmod(w * total, sum(needs_of)) for w in needs_of]
    over = total - sum(w for w, _ in whole)
    order = sorted(range(len(needs_of)), key=lambda i: (-whole[i][1], i))
    return [w + (i in order[:over]) for i, (w, _) in enumerate(whole)]


def recipe(**changes: Any) -> Recipe:
    # A wave has n rollouts per problem on average, so both phases together cost what one phase of the parent costs at
    # the same n. The first phase takes half (the paper's N = 8), the second distributes the rest. DARS-B is
    # improve.epochs=2.
    more = partial(allocate, first=0.5, most=32)
    return drgrpo.recipe(name="dars", allocate=more, select=select.mixed, rollouts=16).but(**changes)
