"""RIAC: regions of tasks, split where learning progress differs most, and sampled by their learning progress.

    alp of a region: |mean r of the older half − mean r of the newer half| of its last M episodes
    a leaf of more than M is split where n₁ n₂ |alp₁ − alp₂| is greatest, of 50 random cuts that leave each side at
    least M/20 episodes and 1/6 of the space; if none does, its oldest quarter is dropped
    70 %: a region by its alp, any task of it; 20 %: any task; 10 %: its worst task, moved by 0.1 z

    Baranes & Oudeyer 2009, doi:10.1109/TAMD.2009.2037513; M 200 and the rest as in TeachMyAgent (arXiv:2103.09815),
    whose n₁ n₂ is 4 for every cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy import ndarray

from isocost.control.teachers import Lesson, Lessons
from isocost.control.teachers.alp_gmm import in_proportion
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("RIAC", "2103.09815", 2021, "uniform", "Regions of high absolute learning progress teach faster.")
CUTS, LEAST, NARROW, DROPPED, MOVED = 50, 20, 1 / 6, 4, 0.1
WORST, ANY = 0.1, 0.3       # chances, added up


@dataclass
class Region:
    """A box of tasks, [low, high), (P,) each, and the numbers of its last episodes."""

    low: ndarray
    high: ndarray
    held: list[int] = field(default_factory=list)
    leaf: bool = True


def progress(returns: ndarray) -> float:
    """alp of a region, from the returns of its episodes, the oldest first."""
    half = len(returns) // 2
    return abs(float(returns[-half:].mean() - returns[:-half].mean())) if len(returns) > 2 else 0.0


def split(region: Region, past: Lessons, most: int, rng: np.random.Generator) -> list[Region]:
    """The two halves of a full leaf by its best cut; none, if no cut is allowed."""
    best, found, held = 0.0, list[Region](), np.array(region.held)
    for _ in range(CUTS):
        d = int(rng.integers(len(region.low)))
        cut = rng.uniform(region.low[d], region.high[d])
        below = past.contexts[held, d] < cut
        sizes = below.sum(), (~below).sum()
        if min(cut - region.low[d], region.high[d] - cut) < NARROW or min(sizes) < max(most / LEAST, 1):
            continue
        one, two = (progress(past.returns[held[side]]) for side in (below, ~below))
        if (score := sizes[0] * sizes[1] * abs(one - two)) >= best:
            high, low = region.high.copy(), region.low.copy()
            high[d] = low[d] = cut
            best, found = score, [replace(region, high=high, held=held[below].tolist()),
                                  replace(region, low=low, held=held[~below].tolist())]
    return found


@bounds(most="[4, inf)")
def choose(past: Lessons, rng: np.random.Generator, *, most: int = 200) -> Lesson:
    """A task of a region. `most` is M, the episodes that a region holds."""
    def added(regions: list[Region], i: int) -> list[Region]:
        new, c = list[Region](), past.contexts[i]
        for region in regions:
            if (c >= region.low).all() and ((c < region.high) | (region.high == 1)).all():
                region.held = [*region.held, i][-most - 1 :]
                if region.leaf and len(region.held) > most:
                    new = split(region, past, most, past.rng_after(i + 1))
                    region.leaf, region.held = not new, region.held[0 if new else most // DROPPED :]
        return [*regions, *new]

    wide = past.contexts.shape[1]
    regions = past.folded("regions", lambda: [Region(np.zeros(wide), np.ones(wide))], added)
    mode = rng.random()
    if not len(past.returns) or WORST <= mode < ANY:
        return past.anywhere(rng)
    region = regions[in_proportion(np.array([progress(past.returns[r.held[-most:]]) for r in regions]), rng)]
    if mode >= WORST:
        return past.of(rng.uniform(region.low, region.high), rng)
    worst = past.contexts[region.held[int(past.returns[region.held].argmin())]]
    return past.of(np.clip(worst + MOVED * rng.standard_normal(wide), region.low, region.high), rng)
