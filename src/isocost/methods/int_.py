"""InT: replace the first wrong step of a failed attempt, imitate up to and including the new step, then do RL.

    keep (x, y_<t*, ỹ) if any continuation of it is right:   L = −log π(ỹ | x, y_<t*) − Σ_{t<t*} log π(y_t | x, y_<t)
    after `steps` steps: A_i = r_i − mean r, on the problems as they are          Yang et al. 2026, arXiv:2601.14209
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.methods import Card, drgrpo, pope
from isocost.ops import spread
from isocost.parts import guide, improve, reward, weight
from isocost.parts.loss import Out, clipped
from isocost.parts.play import episodes, sample
from isocost.parts.select import mixed
from isocost.seams import Loss, Pace, Recipe
from isocost.traits import asks, trait
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Segment
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("InT", "2601.14209", 2026, "drgrpo", "As a start for RL repairs beat reference solutions.")
REPAIR = "repair"           # the variant whose failed attempts are repaired
REPAIRED = "repaired"       # the cohort of attempts that continue from a correction
Fix = tuple[int, str] | None     # the first wrong step, from 0, and what to write in its place
Propose = Callable[[Rollout, list[str], str, World, Pace, Place], Awaitable[Fix]]
REPAIR_PROMPT = (
    "{problem}\n\nA correct solution:\n\n{solution}\n\nAn attempt that went wrong, step by step:\n\n{steps}\n\n"
    "Check the steps in order. Name the first one that is wrong, as <step>number</step>, and write one step to take in "
    "its place, without the final answer, as <instead>step</instead>."
)

needs = pope.needs


@asks("text")
@trait("one_call", "casts_roles")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    propose: str = "reference", boundary: str = "\n\n",
) -> list[Rollout]:
    """Attempts until one fails; the rest continue from it with its first wrong step replaced (InT, arXiv:2601.14209).

    `boundary` ends a step. `propose` names how the wrong step and its replacement are found: a key of `PROPOSERS`.
    Tokens up to and including the new step have the role TEACHER; attempts that continue are the cohort "repaired",
    their parent is the failed attempt.
    """
    if problem.variant != REPAIR or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    if propose not in PROPOSERS:
        raise UserError(f"play.propose is {propose!r}; expected one of {', '.join(PROPOSERS)}")
    attempted: list[Rollout] = []
    while len(attempted) < len(attempts):
        (one,) = await reward.marked(
            await sample(problem, [attempts[len(attempted)]], world, pace, place), problem, place, world
        )
        attempted.append(one)
        if one.score is None or one.score.value > 0 or len(attempted) == len(attempts):
            continue
        text, ends = one.segments[-1], world.text.ends
        cuts = [*episodes(text, boundary, world.text.decode), len(text)]
        steps = [world.text.decode([t for t in text.tokens[a:b].tolist() if t not in ends])
                 for a, b in pairwise(cuts)]
        found = await PROPOSERS[propose](one, steps, boundary, world, pace, place)
        if found is None:
            continue
        wrong, instead = found
        restart = corrected(text, cuts[wrong], world.text.encode(instead))
        room = replace(pace, max_tokens=max(pace.max_tokens - int((restart.role == int(Role.TEACHER)).sum()), 1))
        more = await sample(problem, attempts[len(attempted) :], world, room, place, restart)
        return [*attempted, *(r.but(cohort=REPAIRED, parent=(one.attempt, cuts[wrong])) for r in more)]
    return attempted


async def by_reference(
    failed: Rollout, steps: list[str], boundary: str, world: World, pace: Pace, place: Place
) -> Fix:
    """The first step that differs from the reference solution's, and that step: for problems with one solution.

    None if the step would be the last, or contains the answer.
    """
    right = re.findall(rf".*?{re.escape(boundary)}|.+$", str(failed.problem.meta.get("solution") or ""), re.DOTALL)
    same = [a.strip() == b.strip() for a, b in zip(steps, right, strict=False)]
    wrong = next((k for k, equal in enumerate(same) if not equal), len(same))
    if wrong >= min(len(steps), len(right) - 1) or guide.says(failed.problem.answer, right[wrong]):
        return None
    return wrong, right[wrong]


async def by_itself(
    failed: Rollout, steps: list[str], boundary: str, world: World, pace: Pace, place: Place
) -> Fix:
    """A repair proposed by the policy itself, given its attempt and the reference solution.

    A proposal is one more rollout, which is counted as cancelled because it is not trained on. None if it cannot be
    parsed, names no step, or states the answer.
    """
    problem = failed.problem
    *before, last = problem.prompt
    words = REPAIR_PROMPT.replace("{steps}", "\n".join(f"{k}. {s.strip()}" for k, s in enumerate(steps, 1)))
    words = words.replace("{solution}", str(problem.meta.get("solution") or "")).replace("{problem}", last.content)
    request = Segment.empty(pace.sampling).read(
        world.text.prompt((*before, Message(last.role, words))), Role.PROMPT
    )
    (said,) = await world.engine.generate(     # a separate turn: other random numbers than the attempt's
        request, [failed.attempt], place=place, turn=1, max_tokens=pace.max_tokens, stop=pace.stop
    )
    text = world.text.decode(said.tokens.tolist())
    step, instead = re.search(r"<step>\s*(\d+)", text), re.search(r"<instead>(.*?)</instead>", text, re.DOTALL)
    if not step or not instead or not 1 <= int(step[1]) <= len(steps) or guide.says(problem.answer, instead[1]):
        return None
    return int(step[1]) - 1, instead[1].strip() + boundary


async def by_solution(
    failed: Rollout, steps: list[str], boundary: str, world: World, pace: Pace, place: Place
) -> Fix:
    """The whole reference solution in place of all steps: imitation without repair."""
    solution = str(failed.problem.meta.get("solution") or "")
    return (0, solution) if solution else None


PROPOSERS: dict[str, Propose] = {"reference": by_reference, "itself": by_itself, "solution": by_solution}


def corrected(text: Segment, upto: int, words: Sequence[int]) -> Segment:
    """A start: the first tokens of an attempt and then `words`, all but the prompt with the role TEACHER."""
    start, never = text.cut(upto), np.full(upto, -1)
    role = np.where(start.own, int(Role.TEACHER), start.role)
    return Segment(start.tokens, role, np.zeros_like(start.logp), never, never, start.sampling).read(
        words, Role.TEACHER
    )


def select(group: Group, ledger: Ledger) -> Group | None:
    # One right continuation represents all: each imitates the same tokens. A failed attempt without a repair is
    # trained on like any mixed group; problems that are never solved have none.
    if group.problem.variant != REPAIR:
        return group
    repaired = [r for r in group.rollouts if r.cohort == REPAIRED]
    right = [r for r in repaired if r.score is not None and r.score.value > 0]
    return mixed(group, ledger) if not repaired else group.of(right[:1]) if right else None


@trait("compares_siblings")
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    repaired = torch.tensor([r.cohort == REPAIRED for g in batch.groups for r in g.rollouts])
    right = spread((batch.reward > 0).to(batch.reward), batch)
    return torch.where(repaired[batch.rollout, None], right, drgrpo.advantage(batch, ledger))


def loss(out: Forward, batch: Batch, *, inner: Loss) -> Out:
    """Any loss; -A log π for a teacher's tokens, which have no old policy to clip to."""
    loss, seen = inner(out, batch)
    assert batch.advantage is not None
    return torch.where(batch.role == int(Role.TEACHER), -batch.advantage * out.logp, loss), seen


def recipe(**changes: Any) -> Recipe:
    # The paper repairs once, with 32 continuations, and makes 67 updates of 64 repairs; here every one of the first 64
    # steps repairs anew, with the attempts that are left. The paper's policy proposes repairs: play.propose=itself.
    # That needs a policy that follows instructions; where problems have only one solution, comparing with the reference
    # finds the same step.
    return drgrpo.recipe(
        name="int_",
        guide=partial(guide.as_variant, name=REPAIR, steps=64),
        play=partial(play, propose="reference", boundary="\n\n"),
        select=select,
        advantage=advantage,
        weight=weight.token_mean,
        loss=partial(loss, inner=partial(clipped, low=0.2, high=0.2)),
        improve=partial(improve.imitating, own=False),
        groups=32,
    ).but(**changes)
