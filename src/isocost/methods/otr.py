"""OTR: sample one token where the reference has one, and reward it if it is the reference's token.

    L = −(1/K) Σ_k R_k log π(a_k | x, z_<t),   a_1 .. a_K ~ π(· | x, z_<t),   R = 1 if a = z_t, else β
    in expectation (1 − β) π(z_t) times the gradient of −log π(z_t)          Ming et al. 2025, arXiv:2509.26313
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, reinforce
from isocost.ops import spread
from isocost.parts import guide
from isocost.parts.play import opening, sample
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Role, Rollout, Score, Segment, Stop
from isocost.world import World

CARD = Card("One-token rollout", "2509.26313", 2025, "reinforce", "It learns demonstrations and forgets less than SFT.")
ONE_TOKEN = "one-token"     # the variant that is played by single tokens


@asks("text")
@trait("one_call", "casts_roles")
@bounds(samples="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    samples: int = 4,
) -> list[Rollout]:
    """Single tokens, `samples` at each of several positions of the reference solution (OTR, arXiv:2509.26313).

    Positions, its end among them, are drawn without replacement, and again from the first when all were used. Raises
    UserError for a problem without a solution.
    """
    if problem.variant != ONE_TOKEN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    target = demonstration(problem, world)
    rng = chance.generator(place.seed, chance.Purpose.GUIDE, place.purpose, place.wave, place.slot)
    order = rng.permutation(len(target)).tolist()
    opened, short = await opening(problem, world, pace, place), replace(pace, max_tokens=1)
    if opened is None:      # each attempt is lost by itself, or has the first position
        return await sample(problem, attempts, world, short, place)
    blocks = [attempts[k : k + samples] for k in range(0, len(attempts), samples)]
    places = [order[k % len(order)] for k in range(len(blocks))]
    said = await together(*(
        sample(problem, block, world, short, place, opened.read(target[:at], Role.TEACHER) if at else opened)
        for block, at in zip(blocks, places, strict=True)
    ))
    return [r for rollouts in said for r in rollouts]


def demonstration(problem: Problem, world: World) -> list[int]:
    """The reference solution's tokens and an end token. Raises UserError if there is no solution."""
    solution = str(problem.meta.get("solution") or "")
    if not solution:
        raise UserError(f"problem {problem.id} has no reference solution to imitate: give its row a `solution`")
    return [*world.text.encode(solution), world.text.ends[0]]


async def reward(group: Group, world: World, *, wrong: float = -0.1) -> Group:
    """1 for the reference's token at that position (any end token for its end), else `wrong`, which is β. No verifier.

    An attempt whose environment failed, and one without a token, has no score.
    """
    target, ends = demonstration(group.problem, world), world.text.ends
    scored = []
    for r in group.rollouts:
        text = r.segments[-1]
        if r.stop is Stop.ERROR or not text.written:
            scored.append(r.scored(None))
            continue
        said, asked = int(text.tokens[text.own][0]), target[int((text.role == int(Role.TEACHER)).sum())]
        same = said == asked or (said in ends and asked in ends)
        scored.append(r.scored(Score(1.0 if same else wrong)))
    return group.of(scored)


def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    return spread(batch.reward, batch)   # no baseline: β replaces it


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Reference solutions for all problems."""
    share = profile.get("solutions")
    if share is None:
        return UNMEASURED, "no share of problems with solutions: `isocost profile` measures it"
    return HOLDS if share == 1 else FAILS, f"{share:.0%} of problems have a reference solution"


def recipe(**changes: Any) -> Recipe:
    # β, K and κ are not public. β affects only the noise, because the mean gradient scales with 1 − β; κ is
    # pace.temperature, 1. A step has all positions of a solution in the paper; here n / K of them, drawn for each
    # group.
    return reinforce.recipe(
        name="otr",
        guide=partial(guide.as_variant, name=ONE_TOKEN),
        play=partial(play, samples=4),
        reward=partial(reward, wrong=-0.1),
        advantage=advantage,
    ).but(**changes)
