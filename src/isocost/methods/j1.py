"""J1: a judge of pairs that reads both orders, and is paid where it is right in both.

    of each pair (y, y') of a right and a wrong answer, half of the attempts read (y, y'), half (y', y)
    r = 1 if the attempt's verdict is right, and that of its partner in the other order, else 0;   A of GRPO by order
    2025, "J1: Exploring Simple Test-Time Scaling for LLM-as-a-Judge", arXiv:2505.11875
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from isocost.gather import together
from isocost.methods import Card, spark
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.scorers import answer_of, stepped
from isocost.scorers.generative import verdict
from isocost.seams import Pace, Recipe
from isocost.traits import asks, trait
from isocost.types import Group, Message, Place, Problem, Rollout, Score, Segment, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("J1", "2505.11875", 2025, "spark", "A judge trained by both orders of a pair gains from longer thought.",
            acts="judged")
TURNED = "turned"       # in the meta of a pair: the same pair in the other order; also the cohort that reads it


@asks("text")
@trait("poses_twins")
async def guide(problem: Problem, world: World, ledger: Ledger) -> list[Problem]:
    """The problem, and a pair of different answers of its newest earlier group, one right and one wrong (J1)."""
    right, wrong, rng = spark.earlier(problem, ledger)
    if not right or not wrong:
        return [problem]
    pair = [some[int(rng.integers(len(some)))] for some in (right, wrong)]
    if len({answer_of(problem, r.final) for r in pair}) < 2:
        return [problem]
    words, label, _ = (spark.SIGNS if stepped(problem) else spark.ASK)[spark.PAIR]
    turned = spark.posed(problem, spark.PAIR, words, pair[::-1]).prompt[-1].content
    task = spark.posed(problem, spark.PAIR, words, pair, label)
    return [problem, replace(task, meta={**problem.meta, TURNED: turned})]


@trait("one_call", "casts_roles")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """Attempts, of which every second one of a pair reads it in the other order, as the cohort "turned"."""
    words = problem.meta.get(TURNED)
    if words is None or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    *before, last = problem.prompt
    other = replace(problem, prompt=(*before, Message(last.role, str(words))))
    made = await together(sample(problem, attempts[::2], world, pace, place),
                          sample(other, attempts[1::2], world, pace, place))
    return sorted((*made[0], *(r.but(problem=problem, cohort=TURNED) for r in made[1])), key=lambda r: r.attempt)


async def reward(group: Group, world: World) -> Group:
    """The verifier's score of an answer; of a verdict 1 if it and its partner's are right, else 0.

    The k-th verdicts of both orders are partners; one without a partner is paid for itself. The note `judged` is 1 of a
    verdict. One whose environment failed has no score, and counts as wrong for its partner.
    """
    if group.problem.variant != spark.PAIR:
        made = await verified(group, world)
        return made.of(r.but(notes={**r.notes, "judged": 0.0}) for r in made.rollouts)
    _, one, two = (spark.SIGNS if stepped(group.problem) else spark.ASK)[spark.PAIR]
    right = {r.attempt: r.stop is not Stop.ERROR and verdict(r.final, one, two) is (r.cohort != TURNED)
             for r in group.rollouts}
    orders = [[r.attempt for r in group.rollouts if (r.cohort == TURNED) is side] for side in (False, True)]
    partner = {a: b for x, y in zip(*orders, strict=False) for a, b in ((x, y), (y, x))}
    return group.of(
        r.but(notes={**r.notes, "judged": 1.0}).scored(None if r.stop is Stop.ERROR else Score(float(
            right[r.attempt] and right[partner.get(r.attempt, r.attempt)]))) for r in group.rollouts)


def recipe(**changes: Any) -> Recipe:
    # Here the policy judges its own earlier answers, and is trained on answers as well, as in SPARK; built-in models
    # give verdicts in digits, as the base `judge` of experiments/bases.py does. Siblings of one order are compared.
    # Left out: the imitation of judgements with reflection before RL. Longer thought when the judge is used, by a
    # forced word in place of its end, is the strategy `force`.
    return spark.recipe(name="j1", guide=guide, play=play, reward=reward).but(**changes)
