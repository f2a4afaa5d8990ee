"""DARS: a first look at every problem, then more rollouts where few were right, until advantages sum alike.

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
    """A first look at everyone, then more for whom few attempts were right (DARS, arXiv:2508.13755).

    The share `first` of the wave is dealt out equally, N each; `missing` says how many more a problem then wants, up
    to `most` in all. What is left of the wave is dealt by that: in proportion where it does not suffice, and what is
    over goes to everyone alike, so the sum is exactly `total`. The second phase waits for the slowest of the first.
    """
    each = max(int(first * total) // len(problems), 1)
    groups = yield [each] * len(problems)
    wanted = [missing(_right(g), each, most=most, hard=hard, std=std) for g in groups]
    left = total - each * len(problems)
    over = max(left - sum(wanted), 0)
    if left:
        dealt = zip(in_proportion(wanted, left - over), equal(problems, ledger, over), strict=True)
        yield [a + b for a, b in dealt]


def missing(rate: float, first: int, *, most: int, hard: bool = False, std: bool = False) -> int:
    """Attempts that a problem wants beside its `first`, so that its advantages sum to those of one half right.

    In a group of N of which the share a is right, Σ|A| = N · 2a(1 − a), at most N/2 (with `std`, divided by the
    spread: N · 2√(a(1 − a)), at most N). The aim is that most, or 2(1 − a) times it for the `hard`; none right counts
    as half a one. A problem of which half or more was right wants nothing.
    """
    if rate >= 0.5:
        return 0
    a = max(rate, 0.5 / first)
    per = 2 * (a * (1 - a)) ** (0.5 if std else 1.0)
    aim = first * (1.0 if std else 0.5) * (2 * (1 - a) if hard else 1.0)
    return max(min(ceil((aim - first * per) / per - 1e-9), most - first), 0)


def _right(group: Group) -> float:
    """Share right, by what the verifier said where the reward was shaped; a half where nothing has a score."""
    values = [r.mark.value if r.mark else r.score.value for r in group.rollouts if r.score]
    return sum(min(max(x, 0.0), 1.0) for x in values) / len(values) if values else 0.5


def in_proportion(wanted: Sequence[int], total: int) -> list[int]:
    """`total`, shared in proportion to what each wants, by largest remainder; ties to the first. The sum is exact."""
    if not total:
        return [0] * len(wanted)
    whole = [divmod(w * total, sum(wanted)) for w in wanted]
    over = total - sum(w for w, _ in whole)
    order = sorted(range(len(wanted)), key=lambda i: (-whole[i][1], i))
    return [w + (i in order[:over]) for i, (w, _) in enumerate(whole)]


def recipe(**changes: Any) -> Recipe:
    # A wave has n rollouts for each problem on average, so both looks together cost what the parent's one does at the
    # same n: the first takes half (the paper's N = 8), the second deals out the rest. DARS-B is improve.epochs=2.
    more = partial(allocate, first=0.5, most=32)
    return drgrpo.recipe(name="dars", allocate=more, select=select.mixed, rollouts=16).but(**changes)
