"""The choice of n by expected loss, from joint draws of every n's reward at what the budget pays for.

What all n have in common, such as an asymptote that no run has reached, is the same in a draw of every n and cancels
in their differences. The n with the smallest expected shortfall from the best is the one with the highest mean. The
pilot's own order is evidence too, which depends on no form: the best n at its end is replaced only by one that is
better with a probability of `SURE` (on real sweeps that loses less than the mean alone). A cheaper or more
usual n replaces either only where that loses next to nothing (`NEAR`, `SELDOM`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.laws.law import SELDOM

SURE = 0.7          # probability of being better from which on an n replaces the best one at the pilot's end
NEAR = 0.1          # share of the margin by which a cheaper or more usual n may be expected to lose
CHEAPER = 0.05      # relative difference of two costs below which they count as equal


@dataclass(frozen=True)
class Risk:
    """What a choice is expected to give away: reward, and the share of the budget that would make up for it.

    `reward` is the mean, over draws, of the best n's reward minus the chosen one's. `share` is the geometric mean
    factor on its length that the chosen n would need for the best one's reward, minus 1; None if it is not known.
    """

    reward: float
    share: float | None = None


@dataclass(frozen=True)
class Choice:
    """An n, and why. `equal` are the n whose difference from it is within the margin, itself included; `undecided`
    those that may be better or worse by more than the margin. `fallback` and `settle` are texts of a plan without an
    identified law. `risk` is None without one."""

    n: int
    equal: tuple[int, ...]
    chosen: str
    fallback: str = ""
    settle: str = ""
    undecided: tuple[int, ...] = ()
    risk: Risk | None = None


def crosses(draws: Mapping[int, ndarray], n: int, ahead: Sequence[int]) -> bool:
    """Whether an n that is behind others at the pilot's end passes each of them, with a probability of 1 - `SELDOM`."""
    return all((draws[n] > draws[k]).mean() >= 1 - SELDOM for k in ahead if k in draws)


def choose(
    draws: Mapping[int, ndarray], *, margin: float, common: int, costs: Mapping[int, float] | None = None,
    ahead: Mapping[int, Sequence[int]] | None = None, leader: int | None = None, where: str = "",
) -> Choice:
    """The n of the smallest expected shortfall.

    `draws` is n -> joint draws (D,) of its reward, `margin` the difference in reward that does not matter, `common` the
    default n, `costs` what a run of each n costs in seconds where these differ and are not what the budget is in,
    `ahead` n -> the n that are better by more than two standard errors at the pilot's end (`standing.ahead`), `leader`
    the best n there, `where` the budget as text. An n that is behind others there is left out, unless it passes all of
    them (`crosses`).
    """
    barred = [n for n in draws if not crosses(draws, n, (ahead or {}).get(n, ()))]
    known = {n: v for n, v in draws.items() if n not in barred} or dict(draws)
    best, why = _highest(known), "it has the highest expected reward"
    if (first := _highest(draws)) != best:
        why = f"n = {first} is expected to be better, but is behind at the pilot's end and not likely to pass"
    if leader in known and best != leader and (known[best] > known[leader]).mean() < SURE:
        best, why = leader, f"the best at the pilot's end; n = {best} is better with a probability below {SURE:g}"

    def near(n: int) -> bool:
        lost = known[best] - known[n]
        return bool(lost.mean() < NEAR * margin and (lost > margin).mean() < SELDOM)

    near_ones = [n for n in known if n == best or near(n)]
    n = best
    if costs and min(costs[k] for k in near_ones) < (1 - CHEAPER) * costs[best]:
        n, why = min(near_ones, key=lambda k: (costs[k], k)), f"as good as n = {best} and cheaper in time"
    elif common in near_ones and common != best:
        n, why = common, f"as good as n = {best} and the default"
    gaps = {k: draws[n] - v for k, v in draws.items()}
    equal = tuple(k for k in draws if (abs(gaps[k]) > margin).mean() <= SELDOM)
    undecided = tuple(k for k in draws if k not in equal and k not in barred and (gaps[k] > 0).mean() < 1 - SELDOM)
    shortfall = float((np.max([*draws.values()], axis=0) - draws[n]).mean())
    return Choice(n, equal, _said(n, why, draws, equal, undecided, margin, where), undecided=undecided,
                  risk=Risk(shortfall))


def _highest(draws: Mapping[int, ndarray]) -> int:
    """The n of the highest mean; ties to the smaller n."""
    return max(draws, key=lambda n: (draws[n].mean(), -n))


def _said(
    n: int, why: str, draws: Mapping[int, ndarray], equal: Sequence[int], undecided: Sequence[int],
    margin: float, where: str,
) -> str:
    """The choice in words."""
    parts = [f"n = {n}: {why}{where}"]
    if others := [k for k in equal if k != n]:
        parts.append(f"n = {_names(others)} {'is' if len(others) == 1 else 'are'} equal, within {margin:g}")
    if undecided:
        parts.append(f"cannot tell from n = {_names(undecided)}")
    return "; ".join(parts)


def _names(ns: Sequence[int]) -> str:
    return ", ".join(map(str, ns))
