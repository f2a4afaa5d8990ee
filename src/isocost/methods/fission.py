"""Fission-GRPO: continue dialogues from where they failed, several times each, and learn how to recover.

    x_corr = [x ; a dialogue up to a fault ; what the environment said of it];   G' attempts from each x_corr
    A_i = (r_i − mean r) / std r among those from one start;  the loss is on what follows it alone
    Zhang et al. 2026, arXiv:2601.15625
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.gather import together
from isocost.methods import Card, gigpo, grpo
from isocost.parts import pace as paces
from isocost.parts.play import fork, lent, turn_starts
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, trait
from isocost.types import Problem, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Fission-GRPO", "2601.15625", 2026, "grpo", "Agents recover from their errors more often.")

needs = gigpo.needs


@trait("in_parts", "not_as_posed", "needs_turns")
@bounds(share="[0, 1)", each="[2, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, share: float = 0.5, each: int = 4
) -> list[Rollout]:
    """Play a part of the attempts, and use the share `share` to recover from faults (Fission-GRPO, arXiv:2601.15625).

    Starts are the dialogues that had a fault and earned nothing, up to the answer to their last fault; the latest come
    first, `each` attempts each. Attempts from one start are a cohort, and have no credit for what is before it.
    Attempts that no start uses are plain. With `share` 0 all are.
    """
    main = len(attempts) - int(share * len(attempts)) // each * each
    whole = await play(problem, attempts[:main])
    left, jobs = list(attempts[main:]), []
    for rollout in reversed(whole):         # the latest first, as from a stack
        if len(left) >= each and (at := failing(rollout)) is not None:
            jobs.append((rollout, at, left[:each]))
            left = left[each:]

    async def recovered(rollout: Rollout, at: int, numbers: Sequence[int]) -> list[Rollout]:
        made = await fork(rollout, at, numbers, play.world, play.pace, play.place, play=play.play)
        return [lent(r, at).but(cohort=f"after {rollout.attempt}") for r in made]

    more = await together(play(problem, left), *(recovered(*job) for job in jobs))
    return sorted([*whole, *(r for made in more for r in made)], key=lambda r: r.attempt)


def failing(rollout: Rollout) -> int | None:
    """Where a dialogue that earned nothing read the answer to its last fault; None if it had none, or ended there."""
    faults = [t for t, turn in enumerate(rollout.turns[:-1]) if turn.fault is not None]
    if not faults or sum(t.reward for t in rollout.turns) > 0 or len(rollout.segments) > 1:
        return None
    return turn_starts(rollout.segments[-1]).get(faults[-1] + 1)


def recipe(**changes: Any) -> Recipe:
    # G' = 4 recoveries, from up to two faults of a group. The paper keeps failed dialogues on a stack over the steps,
    # and trains on recoveries in a batch of their own; here they are of the same group and step, from its latest
    # faults. What is said of a fault is the environment's own answer, where the paper has a simulator of errors. Its
    # reward for form, whose weight falls during the run, is left out.
    recover = partial(schedule, share=0.5, each=4)
    return grpo.recipe(
        name="fission", schedule=recover, pace=partial(paces.warmed, max_turns=10), rollouts=16
    ).but(**changes)
