"""How many attempts each slot of a wave gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from isocost.parts import track
from isocost.traits import bounds, trait
from isocost.types import Group, Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def equal(problems: Sequence[Problem], ledger: Ledger, total: int) -> list[int]:
    """The same for everyone; what does not divide goes to the first, one each. The sum is exactly `total`."""
    each, over = divmod(total, len(problems))
    return [each + (slot < over) for slot in range(len(problems))]


@trait("phased")
@bounds(start="[1, inf)", most="[1, inf)", least="[0, inf)")
def while_it_pays(
    problems: Sequence[Problem], ledger: Ledger, total: int, *, gain: Callable[[Group, Ledger], float],
    start: int = 4, most: int = 16, least: float = 0.0039,
) -> Generator[list[int], list[Group], None]:
    """`start` each, then one at a time to all whose `gain` from one more is at least `least`, up to `most`.

    A wave spends its total, so that methods compare at equal cost: the largest gains come first when it runs out,
    and what nobody needs goes to everyone alike.
    """
    counts = equal(problems, ledger, min(total, start * len(problems)))
    while total:
        groups = yield counts
        total -= sum(counts)
        gains = [gain(g, ledger) if len(g.rollouts) < most else -1.0 for g in groups]
        best = sorted((i for i, x in enumerate(gains) if x >= least), key=lambda i: -gains[i])[:total]
        counts = [int(i in best) for i in range(len(groups))] if best else equal(problems, ledger, total)


# by what a first look shows ---------------------------------------------------------------------------------------

@trait("phased")
@trait("favours_rare", std=False)
@bounds(first="(0, 1]", most="[1, inf)")
def by_shortfall(
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


def in_proportion(wanted: Sequence[int], total: int) -> list[int]:
    """`total`, shared in proportion to what each wants, by largest remainder; ties to the first. The sum is exact."""
    if not total:
        return [0] * len(wanted)
    whole = [divmod(w * total, sum(wanted)) for w in wanted]
    over = total - sum(w for w, _ in whole)
    order = sorted(range(len(wanted)), key=lambda i: (-whole[i][1], i))
    return [w + (i in order[:over]) for i, (w, _) in enumerate(whole)]


def _right(group: Group) -> float:
    """Share right, by what the verifier said where the reward was shaped; a half where nothing has a score."""
    values = [r.mark.value if r.mark else r.score.value for r in group.rollouts if r.score]
    return sum(min(max(x, 0.0), 1.0) for x in values) / len(values) if values else 0.5


# by what is known beforehand --------------------------------------------------------------------------------------

@trait("tracks_pass_rate")
@bounds(least="[1, inf)", most="[1, inf)", bins="[1, inf)", k="[1, inf)", window="[1, inf)", margin="[0, 1]")
def by_spread(
    problems: Sequence[Problem], ledger: Ledger, total: int, *,
    least: int = 2, most: float = 4.0, bins: int = 10, k: int = 8, window: int = 16, margin: float = 0.02,
) -> list[int]:
    """One number of attempts for each difficulty bin, so that the means of all groups are surest (arXiv:2601.19280).

    The numbers minimise Σ_b m_b v_b / n_b, m_b the problems of bin b in this wave and v_b their mean p(1 − p), over
    whole n_b from `least` to `most` times the average, subject to Σ_b m_b n_b = total exactly. Left real, that is
    n_b ∝ √v_b.
    """
    known = track.bins(ledger, count=bins, k=k, window=window, margin=margin)
    where = [known.of.get(p.id, track.UNSEEN) for p in problems]
    rates = [known.rate(p.id) for p in problems]
    size = Counter(where)
    spread = {b: sum(p * (1 - p) for p, at in zip(rates, where, strict=True) if at == b) / size[b] for b in size}
    average, over = divmod(total, len(problems))
    arms = range(min(least, average), ceil(most * average) + 1)
    chosen = best_numbers(size, spread, arms, total - over)
    return [chosen[b] + more for b, more in zip(where, equal(problems, ledger, over), strict=True)]


def best_numbers(
    size: Mapping[int, int], spread: Mapping[int, float], arms: Sequence[int], total: int
) -> dict[int, int]:
    """The n_b of `arms` with the least Σ_b size_b spread_b / n_b where Σ_b size_b n_b = total, by dynamic programming.

    Of equals the one with the fewest attempts for the lowest bins. Raises ValueError if no choice meets the total.
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
