"""SPARK: the policy also learns to judge and correct its own answers, from the rewards that it has anyway.

    beside each x:  "is y right?", "which of y, y' is right?" or "correct y", of an earlier group at x;  GRPO on all
    r = 1 if the verdict is what the verifier said of y;  of a correction the verifier's score
    Liu et al. 2025, "SPARK", arXiv:2509.22624
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.parts.improve import SHELF, policy, remember
from isocost.parts.reward import verified
from isocost.parts.select import mark
from isocost.scorers import answer_of, stepped
from isocost.scorers.generative import verdict
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Message, Problem, Rollout, Score, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("SPARK", "2509.22624", 2025, "grpo", "A policy that learns to judge its answers needs no reward model.",
            acts="judged")
POINT, PAIR, REFLECT = "point", "pair", "reflect"
ASK = {      # by variant, with the words that are right or wrong
    POINT: ("{problem}\n\nProposed answer:\n{one}\n\nIs the proposed answer right? Answer yes or no.", "yes", "no"),
    PAIR: ("{problem}\n\nAnswer A:\n{one}\n\nAnswer B:\n{other}\n\nWhich answer is right? Answer A or B.", "A", "B"),
    REFLECT: ("{problem}\n\nAn answer that is wrong:\n{one}\n\nGive the right answer.", "", ""),
}
# Built-in models know only the signs of their problems, so they give verdicts in digits.
SIGNS = {POINT: ("{problem}{one}=", "1", "0"), PAIR: ("{problem}{one}={other}=", "1", "2")}


@asks("text")
@trait("poses_twins")
@bounds(pairs="[0, 1]", reflect="[0, 1]")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *, pairs: float = 0.7, reflect: float = 0.5
) -> list[Problem]:
    """The problem, and a task made of its newest earlier group, if there is one (SPARK, arXiv:2509.22624).

    Where the group has right and wrong answers, the task is to choose between two with probability `pairs`, else
    to judge one, as often right as wrong; where all are alike, to judge one. With probability `reflect` it is to
    correct a wrong answer instead. Two answers always differ, and stand in random order. Tasks are variants, so no
    evaluation has them.
    """
    right, wrong, rng = earlier(problem, ledger)
    if not right and not wrong:
        return [problem]
    ask = SIGNS if stepped(problem) else ASK
    if wrong and REFLECT in ask and rng.random() < reflect:
        return [problem, posed(problem, REFLECT, ask[REFLECT][0], [wrong[int(rng.integers(len(wrong)))]])]
    first = bool(rng.random() < 0.5) if right and wrong else bool(right)
    chosen = [some[int(rng.integers(len(some)))] for some in ((right, wrong) if first else (wrong, right)) if some]
    two = len(chosen) == 2 and rng.random() < pairs and len({answer_of(problem, r.final) for r in chosen}) == 2
    words, yes, no = ask[PAIR if two else POINT]
    return [problem, posed(problem, PAIR if two else POINT, words, chosen, yes if first else no)]


def earlier(problem: Problem, ledger: Ledger) -> tuple[list[Rollout], list[Rollout], np.random.Generator]:
    """Right and wrong answers of a problem's newest kept group, and the random numbers of a task made of them."""
    last = next((g for g in ledger.kept[SHELF] if g.problem.id == problem.id), None)
    marked = [r for r in last.rollouts if r.mark is not None] if last else []
    right, wrong = ([r for r in marked if (mark(r) > 0) is side] for side in (True, False))
    rng = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn, int(chance.share(problem.id) * 2**31))
    return right, wrong, rng


def posed(
    problem: Problem, variant: str, words: str, shown: Sequence[Rollout], label: str | None = None, **more: str
) -> Problem:
    """A task about these answers: {one} is the first of them, {other} the last, and {problem} what was asked."""
    *before, last = problem.prompt
    texts = {"one": shown[0].final, "other": shown[-1].final, **more, "problem": last.content}
    for name, text in ((f"{{{name}}}", text) for name, text in texts.items()):
        words = words.replace(name, text)
    return replace(problem, variant=variant, prompt=(*before, Message(last.role, words)),
                   answer=problem.answer if label is None else label)


async def reward(group: Group, world: World) -> Group:
    """The verifier's score of an answer or a correction; of a verdict 1 if its last word is the right one, else 0.

    The note `judged` is 1 of a verdict.
    """
    if group.problem.variant not in (POINT, PAIR):
        made = await verified(group, world)
        return made.of(r.but(notes={**r.notes, "judged": 0.0}) for r in made.rollouts)
    said = SIGNS if stepped(group.problem) else ASK
    _, yes, no = said[group.problem.variant]
    return group.of(
        r.but(notes={**r.notes, "judged": 1.0}).scored(None if r.stop is Stop.ERROR else Score(float(
            verdict(r.final, yes, no) is (group.problem.answer == yes)))) for r in group.rollouts)


@bounds(room="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, room: int = 512, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement; the groups of problems as posed are kept for tasks, the newest of each, of `room` problems."""
    for group in batch.groups:
        if not group.problem.variant:
            remember(group, ledger, room)
    return inner(batch, recipe, world, ledger)


def recipe(**changes: Any) -> Recipe:
    # The paper makes its tasks of the step's own rollouts, at most 32 to judge and 32 to correct for 512 rollouts, and
    # trains on them after the step; here a task is of the last group of its problem, and half of a step's groups are
    # tasks. Left out: the judging and correcting of answers when the policy is used, which `isocost answer` has as
    # strategies. With built-in problems verdicts are digits, and nothing is to be corrected.
    tasks = partial(guide, pairs=0.7, reflect=0.5)
    return grpo.recipe(
        name="spark", guide=tasks, reward=reward, improve=partial(improve, room=512, inner=policy)
    ).but(**changes)
