"""V_0: the value of each prompt, predicted before any rollout, decides how many rollouts it gets.

    U(B, p) = B (1 − p) [1 − (1 − p)^(B − 1)], from B = 2 on, the next goes where U(B + 1, p) − U(B, p) is largest
    p = V(x | pass rates of other prompts): `isocost scorer --of prompts` fits V; without its folder p is the ledger's
    2026, arXiv:2602.03584
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, drgrpo
from isocost.methods.v05 import remembered
from isocost.parts.allocate import equal
from isocost.scorers import prompts
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("V_0", "2602.03584", 2026, "drgrpo", "Rollouts by a prompt's value beat equal groups at equal rollouts.")
VALUE = "value"     # of a problem's `meta`


@trait("tracks_pass_rate")
async def guide(problem: Problem, world: World, ledger: Ledger, *, file: str = "") -> list[Problem]:
    """The problem with its value by the folder `file`, given the latest mean rewards of the folder's prompts.

    Without a folder it is the mean of the problem's latest groups (`isocost.methods.v05.remembered`), or one half.
    """
    if file:
        fitted = prompts.opened(file)
    if file and world.open_other is not None:       # the toy world, in which methods are tried, opens no model
        latest = {name: t.recent[-1] for name in fitted.ids if name != problem.id and (t := ledger.of(name, "")).recent}
        (value,) = fitted.of(prompts.states_of([problem], fitted.model, world), latest=latest)
    else:
        known = remembered(problem, ledger)
        value = 0.5 if known is None else known
    return [replace(problem, meta={**problem.meta, VALUE: value})]


@trait("favours_rare")
@bounds(most="[1, inf)")
def allocate(problems: Sequence[Problem], ledger: Ledger, total: int, *, most: int = 32) -> list[int]:
    """Two attempts each, and each other one where it raises U most, up to `most` a problem; ties go to the first.

    Attempts beyond `most` for all problems are distributed equally, so the sum is exactly `total`.
    """
    values = [min(max(float(p.meta.get(VALUE, 0.5)), 0.0), 1.0) for p in problems]
    counts = equal(problems, ledger, min(total, 2 * len(problems)))
    gains = [utility(b + 1, p) - utility(b, p) for b, p in zip(counts, values, strict=True)]
    for _ in range(total - sum(counts)):
        i = max((i for i, b in enumerate(counts) if b < most), key=lambda i: gains[i], default=None)
        if i is None:
            break
        counts[i] += 1
        gains[i] = utility(counts[i] + 1, values[i]) - utility(counts[i], values[i])
    return [a + b for a, b in zip(counts, equal(problems, ledger, total - sum(counts)), strict=True)]


def utility(attempts: int, p: float) -> float:
    """U: the expected number of wrong attempts that have a right sibling."""
    return attempts * (1 - p) * (1 - (1 - p) ** max(attempts - 1, 0))


def recipe(**changes: Any) -> Recipe:
    # The paper's most is 128, over batches of many prompts: U grows by nearly 1 - p with each further attempt, so in a
    # wave of 16 problems one of them would take all.
    return drgrpo.recipe(name="v0", guide=partial(guide, file=""), allocate=partial(allocate, most=32)).but(**changes)
