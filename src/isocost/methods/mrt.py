"""MRT: continue thinking only where that gives a higher reward than stopping and answering.

    A_i = r_i − J(μ|c),   J(μ|c) the mean score of siblings that stop at the prefix c and answer
    the progress of what follows c;  over episodes Σ_j J(μ|z_≤j) − J(μ|z_<j) = J(μ|z) − J(μ|x)
    a group: a scout, cut at a random episode into c; some who stop there; some who go on from c, alone trained on
    Qu et al. 2025, arXiv:2503.07572
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.errors import UserError
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.ops import EPS, spread
from isocost.parts.play import episodes, given, sample
from isocost.parts.reward import verified
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, gives, requires, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("MRT", "2503.07572", 2025, "grpo", "Equal accuracy in fewer tokens: every block must raise the chance.")
SCOUT, STOPPED = "scout", "stopped"     # cohorts; attempts that continue have none

reads_stops = requires(
    "stops", at="play",
    why="its baseline is siblings that stopped at the same prefix, and this play has none; mrt.play has",
)


@asks("text")
@trait("one_call", "casts_roles", "not_as_posed")
@gives("stops")
@bounds(stopping="(0, 1)", room="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    boundary: str = "\n\n", stopping: float = 0.5, words: str = "", room: int = 128,
) -> list[Rollout]:
    """From a random cut in a trace, some attempts stop and answer, the others continue (MRT, arXiv:2503.07572).

    The first attempt is the scout; its trace is cut at the end of one of its episodes (`boundary` ends one), or before
    the first. A `stopping` share of the rest answers there, with `words` and `room` tokens as in `brpo.play`; the
    others continue.
    """
    if place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    if len(attempts) < 3:
        raise UserError("mrt.play needs 3 rollouts or more: a scout, one that stops and one that continues")
    (scout,) = await sample(problem, attempts[:1], world, pace, place, start)
    text = scout.segments[-1]
    if not text.written:        # its environment failed
        return [scout.but(cohort=SCOUT), *await sample(problem, attempts[1:], world, pace, place, start)]
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, scout.attempt)
    cut = int(rng.choice(episodes(text, boundary, world.text.decode)))
    at = 1 + min(max(int(stopping * (len(attempts) - 1)), 1), len(attempts) - 2)
    hint, thought = world.text.encode(words), text.cut(cut).written
    short = replace(pace, max_tokens=min(room, pace.max_tokens))
    stopped, others = await together(
        sample(problem, attempts[1:at], world, short, place, given(text, cut, hint)),
        sample(problem, attempts[at:], world, replace(pace, max_tokens=max(pace.max_tokens - thought, 1)), place,
               given(text, cut)),
    )
    parent = (scout.attempt, cut)
    return [scout.but(cohort=SCOUT), *(r.but(cohort=STOPPED, parent=parent) for r in stopped),
            *(r.but(parent=parent) for r in others)]


@gives("the worth of stopping")
async def reward(group: Group, world: World) -> Group:
    """The verifier's score; attempts that continue get the part `stopped`, the mean of those that stopped: J(μ|c)."""
    group = await verified(group, world)
    stops = [r.score.value for r in group.rollouts if r.cohort == STOPPED and r.score is not None]
    if not stops:
        return group
    mean = sum(stops) / len(stops)
    return group.of(
        r if r.score is None or r.cohort else r.scored(replace(r.score, parts={"stopped": mean, **r.score.parts}))
        for r in group.rollouts
    )


def select(group: Group, ledger: object) -> Group | None:
    # Only continuations are trained on; the scout and the attempts that stopped are needed for the baseline alone.
    on = [r for r in group.rollouts if r.score is not None and "stopped" in r.score.parts]
    return group.of(on) if on else None


@reads_stops
@requires(
    "the worth of stopping", at="reward",
    why="its baseline is siblings that stopped at the same prefix; mrt.reward records their mean",
)
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    # As released: the stop replaces the siblings' mean, and there is no spread. α, the weight of the bonus, is then a
    # scale.
    scores = [r.score for g in batch.groups for r in g.rollouts if r.score is not None]
    lead = batch.reward.new_tensor([s.value - s.parts.get("stopped", s.value) for s in scores])
    return spread(lead.where(lead.abs() > EPS * batch.reward.abs(), 0.0), batch)  # a rounding error is no advantage


def recipe(**changes: Any) -> Recipe:
    # A chat model needs play.words, such as scalerl.TIME_IS_UP; without it stopping is only a continuation with fewer
    # tokens. Left out: the STaR variant, which imitates right traces of the highest progress, and the warm-up with
    # traces that backtrack.
    stops = partial(play, stopping=0.5)
    return grpo.recipe(
        name="mrt", play=stops, reward=reward, select=select, advantage=advantage, rollouts=16
    ).but(**changes)
