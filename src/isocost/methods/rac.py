"""RaC: when an attempt is lost, an expert leads it back and corrects it, and only what the expert did is imitated.

    attempt = policy until it is lost (no loss), recovery to a state not seen before, c turns of correction, the end
    L = −(1/Σ|a|) Σ log π(a | s) over recoveries, corrections and the attempts that were right without help
    Hu et al. 2025, arXiv:2509.07953
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, fbc, gigpo, reinforce
from isocost.ops import spread
from isocost.parts import experts, pace
from isocost.parts.play import sample
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Segment, Shown
from isocost.world import World

CARD = Card(
    "RaC", "2509.07953", 2025, "fbc", "Help where attempts went wrong teaches more than clean demonstrations.",
)
HELPED = "helped"       # the cohort of attempts that an expert ended

needs = gigpo.needs


@trait("needs_turns", "casts_roles")
@bounds(faults="[1, inf)", visits="[2, inf)", recovery="[0, inf)", correction="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *,
    faults: int = 2, visits: int = 2, recovery: int = 4, correction: int = 2,
) -> list[Rollout]:
    """In training attempts are watched; one that is lost is ended by an expert (RaC, arXiv:2509.07953).

    It is lost at its `faults`-th turn that is no valid action, or when it comes to one state for the `visits`-th time.
    The expert first recovers, for at most `recovery` turns, until it is in a state that this attempt has not seen; then
    it corrects, for `correction` turns; then the episode ends, whatever it has reached.
    """
    if start is not None or place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    seen = replace(world, env=experts.watched(world, faults=faults, visits=visits))
    made = await sample(problem, attempts, seen, pace, place)
    return await together(*(_helped(r, world, pace, place, recovery, correction) for r in made))


async def _helped(
    attempt: Rollout, world: World, pace: Pace, place: Place, recovery: int, correction: int
) -> Rollout:
    if attempt.final != experts.LOST:
        return attempt
    plan = PhasePlan({t.key for t in attempt.turns}, recovery, correction)
    done = await experts.helped(attempt, world, pace, place, most=recovery + correction, until=plan)
    phases = {"recovery": float(plan.phases.count("recovery")), "correction": float(plan.phases.count("correction"))}
    return done.but(cohort=HELPED, origin=experts.EXPERT, notes={**done.notes, **phases})


class PhasePlan:
    """Which phase each turn of an expert belongs to, and when it stops: called with what the turn was answered with."""

    def __init__(self, seen: set[str], recovery: int, correction: int):
        self.seen, self.most, self.correction = seen, recovery, correction
        self.phases: list[str] = []
        self.back = False           # in a state that the attempt had not seen

    def __call__(self, shown: Shown) -> bool:
        recovering = not self.back and len(self.phases) < self.most
        self.phases.append("recovery" if recovering else "correction")
        self.back = self.back or shown.key not in self.seen
        return self.phases.count("correction") >= self.correction and self.correction > 0


def select(group: Group, ledger: object, *, over: float = 0.0) -> Group | None:
    """What is imitated: attempts with help, and those that were right without."""
    kept = [r for r in group.rollouts if r.score is not None and (r.cohort == HELPED or r.score.value > over)]
    return group.of(kept) if kept else None


def advantage(batch: Batch, ledger: object, *, over: float = 0.0) -> Tensor:  # -> (N, T)
    own = batch.reward.new_tensor([r.cohort != HELPED for g in batch.groups for r in g.rollouts])
    return spread((batch.reward > over) * own, batch)


def recipe(**changes: Any) -> Recipe:
    # Who watches is a rule here; in the paper a person presses a button. The paper adds its first demonstrations to
    # every round; here the policy's own right attempts take their place. The expert is the environment's.
    return fbc.recipe(
        name="rac", play=partial(play, faults=2, visits=2, recovery=4, correction=2), select=partial(select, over=0.0),
        advantage=advantage, loss=partial(experts.imitated, inner=reinforce.loss), improve=experts.taught,
        pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
