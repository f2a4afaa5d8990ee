"""SCALER: one difficulty dial for each environment, adjusted so that half of the attempts are right.

    d ← clip(d + clip(k (acc − τ), ±1), 0, D)          levels ⌊d⌋ and ⌈d⌉ mixed so that their mean is d
    retire after 5 steps of nothing right, 5 at level D, or 10 without a rise of d
    Xu et al. 2026, arXiv:2601.04809
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.methods import FAILS, Card, grpo
from isocost.parts.choose import first
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("SCALER", "2601.04809", 2026, "grpo", "Accuracy stays near one half while the level climbs.")


@trait("tracks_pass_rate")
@bounds(
    window="[1, inf)", gain="[0, inf)", aim="[0, 1]", step="(0, inf)", never="[1, inf)", full="[1, inf)",
    slope="[1, inf)",
)
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    window: int = 64, gain: float = 2.0, aim: float = 0.5, step: float = 1.0, never: int = 5, full: int = 5,
    slope: int = 10,
) -> list[Problem]:
    """An equal number from each active environment, at the two levels next to its dial, with the dial as mean level.

    `scaler.dials` defines how dials move and which environments are active. A fraction of a problem becomes one by
    chance, so the mean level equals the dial in expectation, however few problems an environment gets.
    """
    known = dials(
        ledger, pool, window=window, gain=gain, aim=aim, step=step, never=never, full=full, slope=slope
    )
    shelves: dict[tuple[str, int], list[Problem]] = {}
    for p in pool:
        shelves.setdefault(known.where[p.id], []).append(p)
    each, over = divmod(count, len(known.active))
    out: list[Problem] = []
    for k, slot in enumerate(rng.permutation(len(known.active)).tolist()):
        name = known.active[slot]
        for level, many in mixed_levels(known.of[name].at, each + (k < over), rng):
            shelf = shelves[name, level]
            out += first(shelf, rng.permutation(len(shelf)), many)
    return out


def dials(
    ledger: Ledger, pool: Sequence[Problem], *,
    window: int, gain: float, aim: float, step: float, never: int, full: int, slope: int,
) -> Dials:
    """Environments with a dial each, moved towards a share `aim` of right attempts (SCALER, arXiv:2601.04809).

    After a step, d ← clip(d + clip(gain · (right − aim), ±step), 0, highest level). Up to `window` environments are
    active. One is replaced by another at random when nothing was right for `never` steps in a row, when it was at its
    highest level for `full` steps, or when the line through its last `slope` levels does not rise. An environment is
    `meta["environment"]`, or `meta["source"]`; its levels are the values of `meta["level"]`, in order.
    """
    start = _dials(pool, window, ledger.seed)
    turn = partial(
        _turn, seed=ledger.seed, gain=gain, aim=aim, step=step, never=never, full=full, slope=slope
    )
    return ledger.fold(turn, start)


@dataclass
class Dial:
    """The difficulty of one environment, a real number of levels, and its history since it became active."""

    at: float = 0.0
    past: list[float] = field(default_factory=list)   # its values, step by step
    never: int = 0                                    # steps in a row with nothing right
    full: int = 0                                     # steps in a row at the highest level


@dataclass
class Dials:
    """All environments, and the few that are active."""

    where: Mapping[str, tuple[str, int]]              # problem -> environment, level
    top: Mapping[str, int]                            # environment -> highest level
    active: list[str]
    of: dict[str, Dial]
    retired: int = 0


def _dials(pool: Sequence[Problem], window: int, seed: int) -> Dials:
    named = {p.id: (environment(p), p.meta.get("level") or 0) for p in pool}
    levels: dict[str, list[Any]] = {}
    for name, level in sorted(set(named.values())):
        levels.setdefault(name, []).append(level)
    first = chance.generator(seed, chance.Purpose.CHOOSE, 0, 1).permutation(len(levels))[:window]
    names = list(levels)
    return Dials(
        where={k: (name, levels[name].index(level)) for k, (name, level) in named.items()},
        top={name: len(each) - 1 for name, each in levels.items()},
        active=[names[i] for i in first],
        of={name: Dial() for name in names},
    )


def environment(problem: Problem) -> str:
    return str(problem.meta.get("environment", problem.meta.get("source", "")))


def _turn(
    known: Dials, seen: Sequence[Seen], *,
    seed: int, gain: float, aim: float, step: float, never: int, full: int, slope: int,
) -> Dials:
    """The dials after one more step. Every group counts equally, by its share right; groups of variants do not count.

    The share right at a dial is interpolated from the two levels next to it, each the mean of its groups; if neither
    was sampled, it is the mean over all levels. The dial of an environment that was not sampled does not change.
    """
    marks: dict[str, dict[int, list[float]]] = {}
    for s in seen:
        if s.id in known.where and not s.variant:
            name, level = known.where[s.id]
            marks.setdefault(name, {}).setdefault(level, []).append(s.right / len(s.rewards))
    for slot, name in enumerate(list(known.active)):
        if name not in marks:
            continue
        dial, top = known.of[name], known.top[name]
        right = _between(dial.at, {level: sum(x) / len(x) for level, x in marks[name].items()})
        dial.past = [*dial.past, dial.at][-slope:]
        dial.never = dial.never + 1 if right <= 0 else 0
        dial.full = dial.full + 1 if dial.at >= top else 0
        dial.at = min(max(dial.at + min(max(gain * (right - aim), -step), step), 0.0), float(top))
        if dial.never >= never or dial.full >= full or (len(dial.past) == slope and rise(dial.past) <= 1e-12):
            dial.past, dial.never, dial.full = [], 0, 0
            known.retired += 1
            idle = [e for e in known.of if e not in known.active]
            if idle:
                draw = chance.generator(seed, chance.Purpose.CHOOSE, known.retired, 1)
                known.active[slot] = idle[int(draw.integers(len(idle)))]
    return known


def _between(at: float, right: Mapping[int, float]) -> float:
    """Share right at a dial between two levels that were sampled as a mix."""
    near = {level: max(1 - abs(at - level), 0.0) for level in right}
    if not any(near.values()):
        return sum(right.values()) / len(right)
    return sum(near[level] * r for level, r in right.items()) / sum(near.values())


def rise(y: Sequence[float]) -> float:
    """Slope of the least-squares line through equally spaced points."""
    middle = (len(y) - 1) / 2
    return sum((i - middle) * v for i, v in enumerate(y)) / max(sum((i - middle) ** 2 for i in range(len(y))), 1.0)


def mixed_levels(at: float, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Counts at the levels below and above: their mean is `at` up to one problem, and exactly `at` in expectation."""
    above = floor(count * (at - floor(at)) + rng.random())
    return [(floor(at), count - above), (ceil(at), above)]


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Problems of several levels (`meta["level"]`), and siblings that differ."""
    levels = set(profile.get("levels", ()))
    if len(levels) == 1:
        level = levels.pop()
        why = "no problem has a `level`" if level is None else f"every problem has the same level, {level}"
        return FAILS, f"{why}: a dial needs several levels"
    return grpo.needs(profile)


def recipe(**changes: Any) -> Recipe:
    # A dial starts at the lowest level, as in the paper. An environment that stays at acc = τ is retired with those
    # that fall: the rule is "does not rise". The environment's own problems replace the paper's generator.
    chosen = partial(choose, window=64, gain=2.0, aim=0.5, step=1.0, never=5, full=5, slope=10)
    return grpo.recipe(name="scaler", choose=chosen).but(**changes)
