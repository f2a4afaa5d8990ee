"""SPCT: the policy writes principles and a critique, and then scores of answers; the right one must have the highest.

    S_1 .. S_n, whole numbers, from a task (x, y_1 .. y_n) in random order;   S*_i = Σ_k S_ik over k readings
    r = 1 if S_j > S_i for all i ≠ j, y_j the right one (n = 1: if S_1 is its mark), else −1;   L = GRPO's + β KL
    Liu et al. 2025, "Inference-Time Scaling for Generalist Reward Modeling", arXiv:2504.02495
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, isoeasy, spark
from isocost.parts import enrich, loss
from isocost.parts.reward import verified
from isocost.scorers import answer_of, stepped
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Score, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("SPCT (DeepSeek-GRM)", "2504.02495", 2025, "spark",
            "A judge of scores gains more from votes than from size.", acts="judged")
SCORES = "scores"       # the variant, and in the meta of a task how many answers it shows
ASK = (
    "{problem}\n\n{answers}\n\nWrite the principles by which to judge, with their weights. Criticise each answer by "
    "them. End with a score {scale} for each answer, in order, separated by commas."
)


@trait("poses_twins")
@bounds(answers="[1, inf)")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *, answers: int = 2, ask: str = ASK
) -> list[Problem]:
    """The problem, and a task to score `answers` of its newest earlier group, of which exactly one is right (SPCT).

    Answers differ, and stand in random order. A group with too few of them gives one answer, as often right as wrong
    where it has both. Built-in models know no words: they read the answers and a mark, and write a digit for each.
    """
    right, wrong, rng = spark.earlier(problem, ledger)
    if not right and not wrong:
        return [problem]
    first = right if right and (not wrong or rng.random() < 0.5) else wrong
    shown = [first[int(rng.integers(len(first)))]]
    others = {answer_of(problem, r.final): r for r in wrong}
    if right and answers > 1 and len(others) >= answers - 1:
        shown = [right[int(rng.integers(len(right)))], *list(others.values())[: answers - 1]]
        shown = [shown[int(i)] for i in rng.permutation(len(shown))]
    label = next((str(k) for k, r in enumerate(shown) if any(r is x for x in right)), "")
    said = "".join(f"{r.final}=" for r in shown) if stepped(problem) else "\n\n".join(
        f"Answer {k}:\n{r.final}" for k, r in enumerate(shown, 1))
    words = "{problem}{answers}" + ";" * (len(shown) > 1) if stepped(problem) else ask
    scale = "from 1 to 10" if len(shown) > 1 else "of 1 if it is right and of 0 if not"
    task = spark.posed(problem, SCORES, words, shown, label, answers=said, scale=scale)
    return [problem, replace(task, meta={**problem.meta, SCORES: len(shown)})]


def scores_of(said: str, count: int, digits: bool = False) -> list[int] | None:
    """The last `count` whole numbers of a text, each a single digit if `digits`; None if there are fewer."""
    found = [int(x) for x in re.findall(r"\d" if digits else r"\d+", said)][-count:]
    return found if len(found) == count else None


def rule(scores: Sequence[int] | None, label: str) -> float:
    """1 if the labelled answer's score is above all others, or one answer's score is its mark; else −1. "" is none."""
    if scores is None:
        return -1.0
    if len(scores) == 1:
        return 1.0 if scores[0] == int(label != "") else -1.0
    best = scores[int(label)]
    return 1.0 if all(best > s for k, s in enumerate(scores) if k != int(label)) else -1.0


async def reward(group: Group, world: World) -> Group:
    """The verifier's score of an answer; of scores 1 if they single out the right answer, else −1.

    The note `judged` is 1 of scores.
    """
    if group.problem.variant != SCORES:
        made = await verified(group, world)
        return made.of(r.but(notes={**r.notes, "judged": 0.0}) for r in made.rollouts)
    label, count, digits = str(group.problem.answer), int(group.problem.meta[SCORES]), stepped(group.problem)
    return group.of(
        r.but(notes={**r.notes, "judged": 1.0}).scored(None if r.stop is Stop.ERROR else Score(
            rule(scores_of(r.final, count, digits), label))) for r in group.rollouts)


def recipe(**changes: Any) -> Recipe:
    # β = 0.08 is the paper's. Its judge is a model of its own, of any question and answers; here the policy judges its
    # own earlier answers, and is trained on answers as well, as in SPARK. With built-in problems scores are digits,
    # which the base `judge` of experiments/bases.py writes. Left out: the imitation of filtered judgements before RL,
    # and the scalar judge of readings (meta RM). Votes of k readings when the judge is used are `readings` of the
    # scorer `generative`, which asks about each answer alone.
    clip = partial(loss.clipped, low=0.2, high=0.2)
    near = partial(isoeasy.to_reference, scale=0.08, estimate="k3")
    return spark.recipe(
        name="spct", guide=partial(guide, answers=2), reward=reward, enrich=(enrich.reference,),
        loss=partial(isoeasy.plus, terms=(clip, near)),
    ).but(**changes)
