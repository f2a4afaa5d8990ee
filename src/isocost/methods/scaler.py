"""SCALER: each environment has a dial for its level, turned so that half of the attempts are right.

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
    """As many from each environment in use, at the levels beside its dial, mixed so that their mean is the dial's.

    `scaler.dials` says how dials turn and which environments are in use. What is left of a whole problem
    is one by chance, so the mean is the dial's on average, however few each gets.
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
        for level, some in mixed_levels(known.of[name].at, each + (k < over), rng):
            shelf = shelves[name, level]
            out += first(shelf, rng.permutation(len(shelf)), some)
    return out


def dials(
    ledger: Ledger, pool: Sequence[Problem], *,
    window: int, gain: float, aim: float, step: float, never: int, full: int, slope: int,
) -> Dials:
    """Environments with a dial each, turned towards a share `aim` of right attempts (SCALER, arXiv:2601.04809).

    After a step, d ← clip(d + clip(gain · (right − aim), ±step), 0, highest level). Up to `window` environments are in
    use. One is put back, and another taken at random, when nothing was right for `never` steps in a row, when it
    stood at its highest level for `full`, or when the line through its last `slope` levels does not rise. An
    environment is `meta["environment"]`, or `meta["source"]`; its levels are the values of `meta["level"]`, in order.
    """
    start = _dials(pool, window, ledger.seed)
    turn = partial(
        _turn, seed=ledger.seed, gain=gain, aim=aim, step=step, never=never, full=full, slope=slope
    )
    return ledger.fold(turn, start)


@dataclass
class Dial:
    """One environment's difficulty, a real number of levels, and what became of it since it was taken up."""

    at: float = 0.0
    past: list[float] = field(default_factory=list)   # where it stood, step by step
    never: int = 0                                    # steps in a row with nothing right
    full: int = 0                                     # steps in a row at the highest level


@dataclass
class Dials:
    """The environments there are, and the few that are in use."""

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
    """The dials a step on. Every group counts alike, by its share of right attempts; those of variants do not count.

    A dial goes by its environment's levels on either side of it, each the mean of its groups, weighed by how near it
    is; by all levels where neither was played. An environment that was not played stands still.
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
    """Share right at a level that was played as a mix of the two beside it."""
    near = {level: max(1 - abs(at - level), 0.0) for level in right}
    if not any(near.values()):
        return sum(right.values()) / len(right)
    return sum(near[level] * r for level, r in right.items()) / sum(near.values())


def rise(y: Sequence[float]) -> float:
    """Slope of the least-squares line through equally spaced points."""
    middle = (len(y) - 1) / 2
    return sum((i - middle) * v for i, v in enumerate(y)) / max(sum((i - middle) ** 2 for i in range(len(y))), 1.0)


def mixed_levels(at: float, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """How many at the level below and at the one above: their mean is `at` up to a problem, and expected to be `at`."""
    above = floor(count * (at - floor(at)) + rng.random())
    return [(floor(at), count - above), (ceil(at), above)]


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Problems of several levels (`meta["level"]`), and siblings that differ."""
    levels = set(profile.get("levels", ()))
    if len(levels) == 1:
        level = levels.pop()
        said = "no problem has a `level`" if level is None else f"every problem has the same level, {level}"
        return FAILS, f"{said}: there is no dial to turn"
    return grpo.needs(profile)


def recipe(**changes: Any) -> Recipe:
    # A dial starts at the lowest level, as the paper's does. An environment that stays at acc = τ is retired with those
    # that fall: the rule is "does not rise". Its own pool stands for the paper's generator.
    chosen = partial(choose, window=64, gain=2.0, aim=0.5, step=1.0, never=5, full=5, slope=10)
    return grpo.recipe(name="scaler", choose=chosen).but(**changes)
