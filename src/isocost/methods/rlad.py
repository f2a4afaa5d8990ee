"""RLAD: the policy proposes abstractions of a problem, and solves it with each of them.

    z_1 .. z_m ~ π(x);   y ~ π(x, z_k)
    r(z_k) = mean of r(y) over the solutions with z_k, 0 if z_k holds the answer;   r(y) = 1 if right;   without z: 0
    A = GRPO's among the z, and among the solutions with one z;   L = max(−A ρ, −A clip(ρ, 1 − 0.2, 1 + 0.28)) + β KL
    Qu et al. 2025, "RLAD: Training LLMs to Discover Abstractions", arXiv:2510.02263
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, grpo, isoeasy
from isocost.parts import enrich, guide, loss, weight
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.scorers import stepped
from isocost.seams import Pace, Recipe
from isocost.strategies.rounds import added, filled
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Score, Segment, Stop
from isocost.world import World

CARD = Card("RLAD", "2510.02263", 2025, "grpo", "Several abstractions with few solutions each beat many solutions.",
            acts="abstraction")
NUMBER = "abstraction"      # the note: of which abstraction, from 1; 0 without one
PROPOSED, WITHOUT = "proposed", "without"       # cohorts, beside "with 1", "with 2", ...
PROPOSE = "\n\nDo not solve this. State in a few words an insight that helps to solve it, without the answer."
USE = "\n\nAn insight that may help:\n{abstraction}"


@asks("text")
@trait("one_call", "casts_roles", "not_as_posed")
@bounds(abstractions="[1, inf)", without="[0, 1]", room="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, abstractions: int = 4, without: float = 0.25, room: int = 128,
    propose: str = PROPOSE, use: str = USE,
) -> list[Rollout]:
    """Up to `abstractions` abstractions of at most `room` tokens, and solutions dealt over them (RLAD).

    At most a quarter of the attempts are abstractions. A share `without` of the others has none. Built-in models know
    no words: to the problem they write what they would, and read it after the problem. The note `abstraction` has the
    number. Starts, and attempts outside training, are samples of the problem as posed.
    """
    count = min(abstractions, len(attempts) // 4)
    if start is not None or place.purpose != chance.Purpose.TRAIN or not count:
        return await sample(problem, attempts, world, pace, place, start)
    told = ("", "{abstraction}") if stepped(problem) else (propose, use)
    short = replace(pace, max_tokens=min(room, pace.max_tokens))
    ideas = await sample(added(problem, told[0]), attempts[:count], world, short, place)
    rest = attempts[count:]
    bare = round(without * len(rest))
    plain, *made = await together(sample(problem, rest[:bare], world, pace, place), *(
        sample(added(problem, filled(told[1], abstraction=z.final)), rest[bare:][k::count], world, pace, place)
        for k, z in enumerate(ideas)))
    named = [(PROPOSED, k, z) for k, z in enumerate(ideas, 1)] + [(WITHOUT, 0, r) for r in plain]
    named += [(f"with {k}", k, r) for k, some in enumerate(made, 1) for r in some]
    return sorted((r.but(problem=problem, cohort=cohort, notes={**r.notes, NUMBER: float(k)})
                   for cohort, k, r in named), key=lambda r: r.attempt)


@trait("not_whether_right")
async def reward(group: Group, world: World) -> Group:
    """The verifier's score of a solution; of an abstraction the mean of those with it, 0 if it holds the answer.

    A solution without an abstraction gets 0, beside its mark. An abstraction of whose solutions none has a score has
    none, and none is verified.
    """
    solved = await verified(group.of(r for r in group.rollouts if r.cohort != PROPOSED), world)
    paid = {r.attempt: r for r in solved.rollouts}
    out = []
    for r in group.rollouts:
        if r.cohort == WITHOUT:
            r = paid[r.attempt]
            out.append(r.scored(None if r.score is None else Score(0.0, {"right": r.score.value})))
        elif r.cohort == PROPOSED:
            own = [x.score.value for x in paid.values()
                   if x.score is not None and x.cohort == f"with {r.numbers[NUMBER]:.0f}"]
            leaks = guide.says(group.problem.answer, r.final)
            worth = 0.0 if leaks else sum(own) / max(len(own), 1)
            out.append(r.scored(Score(worth) if own and r.stop is not Stop.ERROR else None))
        else:
            out.append(paid[r.attempt])
    return group.of(out)


def recipe(**changes: Any) -> Recipe:
    # The paper trains two models in turn, the proposer offline by filtered imitation and preferences; here one policy
    # does both in one update. β is not known here: 0.001. A proposal leaks if it holds the answer as a word; the
    # paper's test is 16 attempts without the problem. Left out: the imitation of another model's abstractions before
    # RL, the curriculum from easy to medium, and answering with abstractions when the policy is used. 4 abstractions, 4
    # attempts without and 12 with one make 20. With built-in problems play.room=8 makes an abstraction of first steps.
    clip = partial(loss.clipped, low=0.2, high=0.28)
    near = partial(isoeasy.to_reference, scale=0.001, estimate="k3")
    return grpo.recipe(
        name="rlad", play=partial(play, abstractions=4, without=0.25, room=128), reward=reward,
        weight=weight.token_mean, enrich=(enrich.reference,), loss=partial(isoeasy.plus, terms=(clip, near)),
        rollouts=20,
    ).but(**changes)
