"""ExIt: improve an earlier answer in one step, from the answers that the policy has most to learn from.

    a task is (x, y), y an answer that a group gave;  S = variance of the rewards of that group
    with probability p a problem as posed, else (x, y) with a chance ∝ S;   r = 1 if the new answer is right;   GRPO's A
    Jiang et al. 2025, "Bootstrapping Task Spaces for Self-Improvement", arXiv:2509.04575
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
from isocost.parts.choose import uniform
from isocost.parts.improve import policy
from isocost.parts.reward import verified
from isocost.scorers import stepped
from isocost.seams import Choose, Improve, Recipe
from isocost.traits import asks, bounds, gives, requires, shares
from isocost.types import Group, Message, Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("ExIt", "2509.04575", 2025, "grpo", "Trained on single steps, a policy improves an answer step after step.",
            acts="depth")
ANSWERS, DEPTH = "answers", "depth"     # the ledger keeps groups under this name; how many answers came before
IMPROVE = "Improve your solution."
DIVERGE = "Solve it again by a substantially different approach."


@gives("problems of earlier answers")
@shares(posed_anew="new")
@bounds(new="[0, 1]")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, new: float = 0.5,
    inner: Choose = uniform,
) -> list[Problem]:
    """With probability `new`, or without kept groups, a problem of `inner`; else that of a kept group, drawn by S."""
    fresh, kept = inner(pool, ledger, count, rng), ledger.kept[ANSWERS]
    known = {p.id: p for p in pool} if kept else {}
    return [known[_drawn(kept, rng).problem.id] if kept and not _new(ledger, i, new) else p
            for i, p in enumerate(fresh)]


@requires("problems of earlier answers", at="choose", why="it improves the answers to the problems that exit_.choose "
          "draws; they would seldom be drawn again otherwise")
@asks("text")
@shares(posed_anew="new")
@bounds(new="[0, 1]", diverge="[0, 1]")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *, new: float = 0.5, diverge: float = 0.2,
    words: tuple[str, str] = (IMPROVE, DIVERGE),
) -> list[Problem]:
    """The problem as posed with probability `new`, or without a kept group; else one of its answers to improve.

    With probability `diverge` another approach is asked for. Built-in models know no
    words: the last sign of the prompt asks them to answer again.
    """
    kept = [g for g in ledger.kept[ANSWERS] if g.problem.id == problem.id]
    if not kept or _new(ledger, 0, new):
        return [problem]
    rng = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn)
    group = _drawn(kept, rng)
    before = group.rollouts[int(rng.integers(group.size))]
    asked = problem.text[-1:] if stepped(problem) else words[int(rng.random() < diverge)]
    prompt = (*problem.prompt, Message("assistant", before.final), Message("user", asked))
    depth = 1 + int(before.numbers.get(DEPTH, 0))
    return [replace(problem, variant=f"after {depth}", prompt=prompt, meta={**problem.meta, DEPTH: depth})]


def _new(ledger: Ledger, after: int, new: float) -> bool:
    """Whether the problem after so many more is posed anew: `choose` and `guide` draw the same."""
    draw = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn + after, 1)
    return bool(draw.random() < new)


def learnable(group: Group) -> float:
    """S: the variance of a group's rewards, p (1 − p) if they are 0 or 1."""
    return float(np.var(group.rewards))


def _drawn(kept: Sequence[Group], rng: np.random.Generator) -> Group:
    score = np.array([learnable(g) for g in kept])
    return kept[int(rng.choice(len(kept), p=score / score.sum()))]


async def reward(group: Group, world: World) -> Group:
    """The verifier's score. The note `depth` counts the answers before an attempt."""
    made, depth = await verified(group, world), float(group.problem.meta.get(DEPTH, 0))
    return made.of(r.but(notes={**r.notes, DEPTH: depth}) for r in made.rollouts)


@bounds(room="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, room: int = 512, inner: Improve = policy
) -> dict[str, float]:
    """Any improvement; groups whose rewards differ are kept, at most `room`, those with the lowest S dropped first."""
    seen = inner(batch, recipe, world, ledger)
    told = [g.of(r.but(origin="replay") for r in g.rollouts) for g in batch.groups if learnable(g) > 0]
    ledger.kept[ANSWERS] = sorted([*ledger.kept[ANSWERS], *told], key=learnable)[-room:]
    return seen


def recipe(**changes: Any) -> Recipe:
    # The paper's p, its share of other approaches and the size of its buffer are not known here: 1/2, 1/5 and 512
    # groups. A task shows the last answer alone, without feedback. Left out: the bonus for answers that are far from
    # their siblings' in an embedding, and tasks of several turns. The strategy `revise` answers in several steps, as
    # the paper evaluates.
    return grpo.recipe(
        name="exit_", choose=partial(choose, new=0.5, inner=uniform), guide=partial(guide, new=0.5, diverge=0.2),
        reward=reward, improve=partial(improve, room=512, inner=policy),
    ).but(**changes)
