"""Learning from tokens that a teacher put into an answer: hints, corrections, reference solutions (Role.TEACHER).

The plays here act on a variant of the problem that a guide names, so that an evaluation, which has none, never sees a
hint. Whoever goes on from a teacher's tokens is an attempt like any other, counted and charged.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from isocost import chance, meter
from isocost.errors import UserError
from isocost.ops import EPS, row_mean
from isocost.parts import guide, improve
from isocost.parts.forced import episodes
from isocost.parts.play import opening, sample
from isocost.parts.reward import verified
from isocost.seams import Improve, Loss, Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Batch, Cost, Forward, Group, Message, Place, Problem, Role, Rollout, Segment
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger
    from isocost.parts.loss import Out

HINTED, ONE_TOKEN, REPAIR = "hinted", "one-token", "repair"      # variants
REPAIRED = "repaired"       # cohort of those who go on from a correction; those given a hint are of the cohort HINTED
ASKED = (
    "{problem}\n\nA correct solution:\n\n{solution}\n\nAn attempt that went wrong, step by step:\n\n{steps}\n\n"
    "Check the steps in order. Name the first one that is wrong, as <step>number</step>, and write one step to take in "
    "its place, without the final answer, as <instead>step</instead>."
)


# plays ----------------------------------------------------------------------------------------------------------------

@trait("one_call", "casts_roles")
@bounds(plain="(0, 1]", most="[0, 1]")
async def hinted(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    plain: float = 0.5, most: float = 0.5,
) -> list[Rollout]:
    """A share `plain` of the attempts first; the others go on from a hint, the longer the fewer were right (ADHint).

    The hint is the share `most` · (1 − right) of the solution's pieces, rounded, less what says the answer. Where it is
    empty the others are attempts like the first; else they are the cohort "hinted" (arXiv:2512.13095).
    """
    count = min(max(round(plain * len(attempts)), 1), len(attempts))
    if problem.variant != HINTED or start is not None or count == len(attempts):
        return await sample(problem, attempts, world, pace, place, start)
    first = await _marked(await sample(problem, attempts[:count], world, pace, place), problem, place, world)
    hint = hint_for(problem, [r.score.value for r in first if r.score is not None], most)
    begun = opening(problem, world, pace).read(world.text.encode(hint), Role.TEACHER) if hint else None
    others = await sample(problem, attempts[count:], world, pace, place, begun)
    return [*first, *(r.but(cohort=HINTED) if hint else r for r in others)]


def hint_for(problem: Problem, rewards: Sequence[float], most: float) -> str:
    """The hint for a problem of which some attempts earned this much; none where nothing is known."""
    if not rewards:
        return ""
    pieces = guide.pieces_of(str(problem.meta.get("solution") or ""))
    right = sum(min(max(r, 0.0), 1.0) for r in rewards) / len(rewards)
    length = min(round(most * (1 - right) * len(pieces)), len(pieces) - 1)
    while length > 0 and guide.says(problem.answer, "".join(pieces[:length])):
        length -= 1
    return "".join(pieces[: max(length, 0)])


@trait("one_call", "casts_roles")
@bounds(samples="[1, inf)")
async def one_token(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    samples: int = 4,
) -> list[Rollout]:
    """Single tokens, `samples` at each of as many places of the reference solution as there is room for (OTR).

    The places are drawn without replacement, its end among them, and again from the first when all had their turn.
    Raises UserError for a problem without a solution (arXiv:2509.26313).
    """
    if problem.variant != ONE_TOKEN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    target = demonstration(problem, world)
    rng = chance.generator(place.seed, chance.Purpose.GUIDE, place.purpose, place.wave, place.slot)
    order = rng.permutation(len(target)).tolist()
    begun, short = opening(problem, world, pace), replace(pace, max_tokens=1)
    blocks = [attempts[k : k + samples] for k in range(0, len(attempts), samples)]
    places = [order[k % len(order)] for k in range(len(blocks))]
    said = await asyncio.gather(*(
        sample(problem, block, world, short, place, begun.read(target[:at], Role.TEACHER) if at else begun)
        for block, at in zip(blocks, places, strict=True)
    ))
    return [r for some in said for r in some]


@trait("one_call", "casts_roles")
async def repaired(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    propose: str = "reference", boundary: str = "\n\n",
) -> list[Rollout]:
    """Attempts until one fails; the rest go on from it with its first wrong step replaced (InT, arXiv:2601.14209).

    `boundary` ends a step. `propose` names who finds the wrong step and what to put there: a key of `PROPOSERS`. All
    up to and with the new step is the teacher's; those who go on are the cohort "repaired", their parent the failure.
    """
    if problem.variant != REPAIR or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    if propose not in PROPOSERS:
        raise UserError(f"play.propose is {propose!r}; there are {', '.join(PROPOSERS)}")
    tried: list[Rollout] = []
    while len(tried) < len(attempts):
        (one,) = await _marked(
            await sample(problem, [attempts[len(tried)]], world, pace, place), problem, place, world
        )
        tried.append(one)
        if one.score is None or one.score.value > 0 or len(tried) == len(attempts):
            continue
        text, ends = one.segments[-1], world.text.ends
        cuts = [*episodes(text, boundary, world.text.decode), len(text)]
        steps = [world.text.decode([t for t in text.tokens[a:b].tolist() if t not in ends])
                 for a, b in pairwise(cuts)]
        found = await PROPOSERS[propose](one, steps, boundary, world, pace, place)
        if found is None:
            continue
        wrong, instead = found
        begun = corrected(text, cuts[wrong], world.text.encode(instead))
        room = replace(pace, max_tokens=max(pace.max_tokens - int((begun.role == int(Role.TEACHER)).sum()), 1))
        more = await sample(problem, attempts[len(tried) :], world, room, place, begun)
        return [*tried, *(r.but(cohort=REPAIRED, parent=(one.attempt, cuts[wrong])) for r in more)]
    return tried


Fix = tuple[int, str] | None     # the first wrong step, from 0, and what to write in its place
Propose = Callable[[Rollout, list[str], str, World, Pace, Place], Awaitable[Fix]]


async def by_reference(
    failed: Rollout, steps: list[str], boundary: str, world: World, pace: Pace, place: Place
) -> Fix:
    """The first step that is not the reference solution's, and that one: where a problem has one way to be solved.

    Nothing where the step would be the last, or says the answer.
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
    """What the policy itself proposes, shown its attempt and the reference solution.

    A proposal that is begun is one more rollout on the bill; it does not come home, so it is counted as cancelled.
    Nothing where its answer cannot be read, names no step, or states the answer.
    """
    problem = failed.problem
    *before, last = problem.prompt
    words = ASKED.replace("{steps}", "\n".join(f"{k}. {s.strip()}" for k, s in enumerate(steps, 1)))
    words = words.replace("{solution}", str(problem.meta.get("solution") or "")).replace("{problem}", last.content)
    asked = Segment.empty(pace.sampling).read(
        world.text.prompt((*before, Message(last.role, words))), Role.PROMPT
    )
    try:
        with meter.tab() as tab:
            (said,) = await world.engine.generate(     # a turn of its own: other draws than the attempt's
                asked, [failed.attempt], place=place, turn=1, max_tokens=pace.max_tokens, stop=pace.stop
            )
    finally:      # engines count who begins a first turn
        world.meter.charge(Cost(rollouts=int(tab.cost.decode > 0)))
    text = world.text.decode(said.tokens.tolist())
    step, instead = re.search(r"<step>\s*(\d+)", text), re.search(r"<instead>(.*?)</instead>", text, re.DOTALL)
    if not step or not instead or not 1 <= int(step[1]) <= len(steps) or guide.says(problem.answer, instead[1]):
        return None
    return int(step[1]) - 1, instead[1].strip() + boundary


async def by_solution(
    failed: Rollout, steps: list[str], boundary: str, world: World, pace: Pace, place: Place
) -> Fix:
    """The whole reference solution in the place of everything: what imitation without repair would learn."""
    solution = str(failed.problem.meta.get("solution") or "")
    return (0, solution) if solution else None


PROPOSERS: dict[str, Propose] = {"reference": by_reference, "itself": by_itself, "solution": by_solution}


def corrected(text: Segment, upto: int, words: Sequence[int]) -> Segment:
    """The first tokens of an attempt and then words, all of it a teacher's but the prompt, as a start."""
    start, never = text.cut(upto), np.full(upto, -1)
    role = np.where(start.own, int(Role.TEACHER), start.role)
    return Segment(start.tokens, role, np.zeros_like(start.logp), never, never, start.sampling).read(
        words, Role.TEACHER
    )


def demonstration(problem: Problem, world: World) -> list[int]:
    """The reference solution's tokens and an end. Raises UserError where there is no solution."""
    solution = str(problem.meta.get("solution") or "")
    if not solution:
        raise UserError(f"problem {problem.id} has no reference solution to imitate: give its row a `solution`")
    return [*world.text.encode(solution), world.text.ends[0]]


async def _marked(rollouts: list[Rollout], problem: Problem, place: Place, world: World) -> Sequence[Rollout]:
    return (await verified(Group(problem, tuple(rollouts), place), world)).rollouts


# learning -------------------------------------------------------------------------------------------------------------

def imitating(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, own: bool = True, inner: Improve = improve.policy
) -> dict[str, float]:
    """Any improvement, in which a teacher's tokens carry the credit of the rollout they stand in, if it is above 0.

    So they are never unlearned, and nothing is where credit is not. Without `own`, where they do the policy's tokens
    after them do not. Averages are taken anew; the tokens are as old as the step, for nobody sampled them.
    """
    given = batch.advantage
    assert given is not None
    credit = row_mean(given, batch.mask)                                                   # (N, 1)
    theirs = (batch.role == int(Role.TEACHER)) & (credit > 0)
    taught = theirs.any(-1)
    if not bool(taught.any()):
        return {**inner(batch, recipe, world, ledger), "taught": 0.0}
    if bool((batch.age > 0).any()):
        now = world.learner.score(batch.but(mask=theirs, kept=())).logp.to(batch.logp.dtype)
        batch = batch.but(logp=torch.where(theirs, now, batch.logp))
    kept = tuple(() if t else k for t, k in zip(taught.tolist(), batch.kept, strict=True)) if batch.kept else ()
    mask = batch.mask | theirs if own else torch.where(taught[:, None], theirs, batch.mask)
    batch = batch.but(mask=mask, kept=kept, advantage=torch.where(theirs, credit, given) * mask)
    batch = batch.but(weight=recipe.weight(batch))
    return {**inner(batch, recipe, world, ledger), "taught": float(theirs.sum())}


def plainly(out: Forward, batch: Batch, *, inner: Loss) -> Out:
    """Any loss; -A log π of a teacher's tokens, which have no policy to be clipped to."""
    loss, seen = inner(out, batch)
    assert batch.advantage is not None
    return torch.where(batch.role == int(Role.TEACHER), -batch.advantage * out.logp, loss), seen


def consistently(out: Forward, batch: Batch, *, inner: Loss) -> Out:
    """Any loss, of a teacher's tokens only as far as the policy is as decided there as in its own words (ADHint).

    Times min(H_t, H̄) / max(H_t, H̄), a constant: H_t the entropy there, H̄ its mean over the row's own tokens.
    """
    loss, seen = inner(out, batch)
    theirs, entropy = batch.role == int(Role.TEACHER), out.entropy.detach()
    usual = row_mean(entropy, batch.mask & ~theirs).expand_as(entropy)
    agreed = (torch.minimum(entropy, usual) + EPS) / (torch.maximum(entropy, usual) + EPS)
    return torch.where(theirs, agreed * loss, loss), seen
