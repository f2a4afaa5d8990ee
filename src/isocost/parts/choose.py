"""Which problems next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.parts import track
from isocost.traits import bounds, gives, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger
    from isocost.seams import Choose


def uniform(pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator) -> list[Problem]:
    """Every problem once per epoch, in an order of its own for each epoch.

    The order is addressed by (seed, epoch) and the place in it by how many problems have been drawn, so a resumed
    run, and one that drops or refills groups, goes on where it was. A wave may span two epochs. `rng` is not used.
    """
    places = range(ledger.drawn, ledger.drawn + count)
    return [pool[_order(ledger.seed, at // len(pool), len(pool))[at % len(pool)]] for at in places]


@gives("deferred groups first")
def unfinished_first(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, inner: Choose = uniform
) -> list[Problem]:
    """The problems whose groups were put by to be played on, oldest first; then as `inner` has it."""
    first = [group.problem for group in ledger.unfinished[:count]]
    return [*first, *inner(pool, ledger, count - len(first), rng)]


@trait("tracks_pass_rate")
@bounds(rate="(0, 1]")
def unretired(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, rate: float = 0.9
) -> list[Problem]:
    """`uniform`, without the problems of which a share `rate` was right when the epoch began (arXiv:2510.13786).

    They never come back; if nothing is left, all do. An epoch is as long as it has problems, so where it begins is
    counted from the first: by what had been drawn when each step was closed.
    """
    since, size = track.passed(ledger, rate=rate), len(pool)
    closed = [round(line["epoch"] * size) for line in ledger.steps]
    out: list[Problem] = []
    begun = epoch = 0
    while len(out) < count:
        steps = bisect_right(closed, begun)      # closed when this epoch began
        order = _order(ledger.seed, epoch, size).tolist()
        left = [pool[i] for i in order if since.get(pool[i].id, steps + 1) > steps] or [pool[i] for i in order]
        out += left[max(ledger.drawn + len(out) - begun, 0) :][: count - len(out)]
        begun, epoch = begun + len(left), epoch + 1
    return out


@lru_cache(maxsize=8)
def _order(seed: int, epoch: int, size: int) -> np.ndarray:
    return chance.generator(seed, chance.Purpose.CHOOSE, epoch).permutation(size)


@trait("tracks_pass_rate")
@bounds(lean="[0, inf)", right="(0, inf)", wrong="(0, inf)", touched="[0, 1]", idle="[0, 1]")
def by_belief(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    lean: float = 2.0, right: float = 1.0, wrong: float = 1.0, touched: float = 0.5, idle: float = 0.99,
) -> list[Problem]:
    """The `count` with the largest p (1 − p)^lean, p drawn for each from what is believed of it (VADE).

    Beliefs are Beta(right + a, wrong + b), with a and b the attempts that were right and wrong; what a problem has
    told counts `touched` times as much when it has told something new, and `idle` times in every other step. The
    score is largest at p = 1 / (1 + lean).
    """
    known = track.beliefs(ledger, touched=touched, idle=idle)
    counts = np.array([known.get(p.id, (0.0, 0.0)) for p in pool])
    p = rng.beta(right + counts[:, 0], wrong + counts[:, 1])
    return _first(pool, np.argsort(-p * (1 - p) ** lean, kind="stable"), count)


@trait("tracks_pass_rate")
@bounds(aim="[0, 1]", spread="(0, inf)", probes="[0, 1]", references="[1, inf)", sharpness="(0, inf)")
def targeted(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    aim: float = 0.5, spread: float = 1e-3, probes: float = 1 / 3, references: int = 256, sharpness: float = 0.05,
    embed: Callable[[Problem], ndarray] = track.trigrams,
) -> list[Problem]:
    """Drawn without replacement by exp(−|p − aim| / spread), p being a predicted pass rate (DOTS, arXiv:2506.05316).

    The share `probes` of a wave is drawn evenly instead: without such problems the prediction would learn only of
    those it likes. They are trained on as well, for they are paid for.
    """
    guess = track.predicted(pool, ledger, references=references, sharpness=sharpness, embed=embed)
    order = -np.abs(guess - aim) / spread + rng.gumbel(size=len(pool))
    order[rng.permutation(len(pool))[: round(probes * count)]] = np.inf
    return _first(pool, np.argsort(-order, kind="stable"), count)


@trait("tracks_pass_rate")
@bounds(
    window="[1, inf)", gain="[0, inf)", aim="[0, 1]", step="(0, inf)", never="[1, inf)", full="[1, inf)",
    slope="[1, inf)",
)
def at_the_dial(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    window: int = 64, gain: float = 2.0, aim: float = 0.5, step: float = 1.0, never: int = 5, full: int = 5,
    slope: int = 10,
) -> list[Problem]:
    """As many from each environment in use, at the levels beside its dial, mixed so that their mean is the dial's.

    `track.dials` says how dials turn and which environments are in use. What is left of a whole problem
    is one by chance, so the mean is the dial's on average, however few each gets.
    """
    known = track.dials(
        ledger, pool, window=window, gain=gain, aim=aim, step=step, never=never, full=full, slope=slope
    )
    shelves: dict[tuple[str, int], list[Problem]] = {}
    for p in pool:
        shelves.setdefault(known.where[p.id], []).append(p)
    each, over = divmod(count, len(known.active))
    out: list[Problem] = []
    for k, slot in enumerate(rng.permutation(len(known.active)).tolist()):
        name = known.active[slot]
        for level, some in mixed_levels(known.of[name].at, each + (k < over), rng):
            shelf = shelves[name, level]
            out += _first(shelf, rng.permutation(len(shelf)), some)
    return out


def mixed_levels(at: float, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """How many at the level below and at the one above: their mean is `at` up to a problem, and expected to be `at`."""
    above = floor(count * (at - floor(at)) + rng.random())
    return [(floor(at), count - above), (ceil(at), above)]


def _first(pool: Sequence[Problem], order: ndarray, count: int) -> list[Problem]:
    """The first `count` in this order, which begins again where the pool is smaller."""
    return [pool[i] for i in np.resize(order, count)]
