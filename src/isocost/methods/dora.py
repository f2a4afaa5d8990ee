"""DORA: a step trains on the groups that are complete; a longer one is finished by the version that began it.

    a group of T_max tokens comes ⌈T_max / w⌉ − 1 waves late, at most η;   A_i = r_i − mean r,  tokens over a constant
    L = −max(min(ρ A, clip(ρ, 1 − ε_low, 1 + ε_high) A), c A if A < 0),   times min(π / sampler, C);   no KL
    Meituan 2025, "LongCat-Flash-Thinking", arXiv:2509.18883
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, april, drgrpo
from isocost.parts.loss import clipped, corrected
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, requires, trait
from isocost.types import Group, Problem, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("DORA (LongCat-Flash-Thinking)", "2509.18883", 2025, "drgrpo",
            "No step waits for a long rollout, and none is written by two policies.", acts="late")


@trait("defers_groups")
@requires("deferred groups first", at="choose", why="a group that is late would wait until its problem is drawn again; "
          "april.choose draws it next")
@bounds(window="[1, inf)", most="[0, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, window: int = 512, most: int = 2
) -> list[Rollout]:
    """Whole groups, each as many waves late as its longest rollout needs windows beyond the first, at most `most`.

    Time is counted in tokens: an engine that serves several versions writes `window` of them in the time of a wave.
    Until then a group takes its place in every wave, as it would in such an engine, and was charged when it began. The
    note `late` is the number of waves; a late rollout has the origin "resumed".
    """
    waited = april.resumed_group(problem, ledger)
    group = waited if waited.rollouts else Group(problem, tuple(await play(problem, attempts)), play.place)
    written = max((sum(s.written for s in r.segments) for r in group.rollouts), default=1)
    late = play.place.wave - group.place.wave
    if late < min(ceil(written / window) - 1, most):
        ledger.kept[april.UNFINISHED].append(group)
        return []
    return [r.but(notes={**r.notes, "late": float(late)}, origin="resumed" if late else r.origin)
            for r in group.rollouts]


def recipe(**changes: Any) -> Recipe:
    # The report's ε, c, C and bound on staleness are not known here: 0.2, 0.28, 3, 2 and 2 steps. The engine here has
    # one version, and writes a late group to its end at once: which groups a step trains on, and which version wrote
    # them, are DORA's, and nothing is faster. Left out: the reuse of caches, devices that change roles, and experts of
    # domains that are trained apart and merged.
    triplet = partial(clipped, low=0.2, high=0.28, dual=3.0)
    return drgrpo.recipe(
        name="dora", choose=april.choose, schedule=partial(schedule, window=512, most=2),
        loss=partial(corrected, inner=triplet, cap=2.0),
    ).but(**changes)
