"""RLPT: sample the next segment of a text, or one left out, and reward it if it is the text's own.

    a text in segments s_1 .. s_n:   s_i from s_<i, i = 2..n;   with infilling also s_i from s_<i and s_i+1, i = 2..n−1
    J = E[r] of the first + λ E[r] of the second,   r = 1 if the segment is the text's, else 0;   advantages of GRPO
    Li et al. 2025, "Reinforcement learning on pre-training data", arXiv:2509.19249
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost import chance
from isocost.methods import Card, grpo, otr
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds
from isocost.types import Group, Message, Place, Problem, Rollout, Score, Segment, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("RLPT", "2509.19249", 2025, "grpo", "RL on plain text raises answers as well.")
TARGET, BOUNDARY = "segment", "boundary"        # in the meta of a task: what is to be written, and what ends it
BETWEEN = "{before}\n\n[...]\n\n{after}\n\nWrite the passage that stands at [...]."

needs = otr.needs       # texts: problems with solutions


@asks("text")
@bounds(infill="[0, 1]")
async def guide(
    problem: Problem, world: World, ledger: Ledger, *, boundary: str = "\n", infill: float = 0.0, words: str = BETWEEN
) -> list[Problem]:
    """One task of a problem's text, which is its prompt and then its solution in segments that end with `boundary`.

    The first segment is the prompt. A share λ / (1 + λ) of the tasks, λ = `infill`, asks by `words` for a segment
    between two others. No task asks for a blank segment, which anyone can write. A problem without a solution is
    posed as it is.
    """
    parts = segments(str(problem.meta.get("solution") or ""), boundary)
    asked = [k for k, part in enumerate(parts) if part.removesuffix(boundary).strip()]
    if not asked:
        return [problem]
    rng = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn)
    inner = [k for k in asked if k + 1 < len(parts)]
    between = bool(inner) and rng.random() < infill / (1 + infill)
    asked = inner if between else asked
    i = asked[int(rng.integers(len(asked)))]
    task = replace(problem, variant=f"segment-{i}", prefix="".join(parts[:i]),
                   meta={**problem.meta, TARGET: parts[i], BOUNDARY: boundary})
    if between:
        *before, last = problem.prompt
        text = words.replace("{after}", parts[i + 1]).replace("{before}", last.content + "".join(parts[:i]))
        task = replace(task, variant=f"between-{i}", prefix="", prompt=(*before, Message(last.role, text)))
    return [task]


def segments(text: str, boundary: str) -> list[str]:
    """The text in parts that end with `boundary`, all but the last; joined, they are the text."""
    found = [f"{part}{boundary}" for part in text.split(boundary)]
    return [part for part in (*found[:-1], found[-1].removesuffix(boundary)) if part]


async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """`sample`, which ends a task where its segment does."""
    if ends := problem.meta.get(BOUNDARY):
        pace = replace(pace, stop=(*pace.stop, str(ends)))
    return await sample(problem, attempts, world, pace, place, start)


async def reward(group: Group, world: World) -> Group:
    """1 for the text's own segment, up to white space, else 0; no verifier is called. Others are verified.

    A truncated segment scores 0; an attempt whose environment failed has no score.
    """
    if TARGET not in group.problem.meta:
        return await verified(group, world)
    wanted = str(group.problem.meta[TARGET]).strip()
    return group.of(r.scored(None if r.stop is Stop.ERROR else
                             Score(float(r.stop is not Stop.LENGTH and _written(r, world) == wanted)))
                    for r in group.rollouts)


def _written(rollout: Rollout, world: World) -> str:
    text, ends = rollout.segments[-1], world.text.ends
    return world.text.decode([t for t in text.tokens[text.own].tolist() if t not in ends]).strip()


def recipe(**changes: Any) -> Recipe:
    # The paper's text is a web corpus; here it is the solutions. Its judge is a model that accepts any segment of the
    # same meaning, and one that the next segments go on from; here segments are compared as strings. λ is not
    # published; a base that follows no instruction cannot infill, so it is 0. Left out: the thinking before a segment,
    # and the imitation before RL.
    task = partial(guide, boundary="\n", infill=0.0)
    return grpo.recipe(name="rlpt", guide=task, play=play, reward=reward).but(**changes)
