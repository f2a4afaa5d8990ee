"""ScaleRL: of each design choice the one with the highest asymptote, combined so that scaling is predictable.

    L = −mean_x (1/Σ|y_i|) Σ_i Σ_t sg(min(ρ, 5)) Â log π,   Â_i = (r_i − mean_x r) / std of what is left of all batch
    settled groups leave the average and are not replaced; problems with 90% right leave for ever, between epochs
    thought is interrupted after 10-12k tokens; rollouts are at most 8 steps old; sampler and learner have a head in
    float32, as all worlds here do          Khatri et al. 2025, "The art of scaling RL compute for LLMs", 2510.13786
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, cispo
from isocost.ops import EPS, in_groups, spread
from isocost.parts import pace, select
from isocost.parts.choose import order
from isocost.parts.play import sample
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Place, Problem, Role, Rollout, Segment, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card(
    "ScaleRL", "2510.13786", 2025, "cispo",
    "The first half of a run's compute predicts the reward of the second.",
)

TIME_IS_UP = "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"


@trait("tracks_pass_rate")
@bounds(rate="(0, 1]")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, rate: float = 0.9
) -> list[Problem]:
    """`uniform`, without problems whose share right reached `rate` before the epoch began (arXiv:2510.13786).

    They are dropped for good; if none is left, all are used. An epoch has as many problems as are left, so its start is
    computed from the first epoch on, by the number of problems drawn when each step was closed.
    """
    since, size = passed(ledger, rate=rate), len(pool)
    closed = [round(line["epoch"] * size) for line in ledger.steps]
    out: list[Problem] = []
    started = epoch = 0
    while len(out) < count:
        steps = bisect_right(closed, started)    # closed when this epoch began
        turn = order(ledger.seed, epoch, size)
        left = [pool[i] for i in turn if since.get(pool[i].id, steps + 1) > steps] or [pool[i] for i in turn]
        out += left[max(ledger.drawn + len(out) - started, 0) :][: count - len(out)]
        started, epoch = started + len(left), epoch + 1
    return out


def passed(ledger: Ledger, *, rate: float) -> dict[str, int]:
    """For each problem, the number of closed steps after which its share right first reached `rate`."""
    return ledger.fold(partial(_pass, rate=rate), Passed()).since


def _pass(known: Passed, seen: Sequence[Seen], *, rate: float) -> Passed:
    known.steps += 1
    for s in seen:
        if not s.variant:
            right, tries = known.counts.get(s.id, (0.0, 0))
            known.counts[s.id] = right, tries = right + s.right, tries + len(s.rewards)
            if right >= rate * tries:
                known.since.setdefault(s.id, known.steps)
    return known


@dataclass
class Passed:
    """Right and all attempts per problem so far, and when a problem's share of right ones first was enough."""

    steps: int = 0
    counts: dict[str, tuple[float, int]] = field(default_factory=dict)   # right, attempts
    since: dict[str, int] = field(default_factory=dict)                  # how many steps were closed by then


@asks("text")
@trait("forces_end")
@bounds(low="[1, inf)", high="[1, inf)", room="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    low: int = 10240, high: int = 12288, room: int = 2048, words: str = TIME_IS_UP, closing: str = "</think>",
) -> list[Rollout]:
    """Attempts still thinking after `low` to `high` tokens, a random number each, are interrupted (arXiv:2510.13786).

    The attempt reads `words` and then has `room` tokens to answer (ScaleRL's forced interruption). The words have no
    credit. An attempt that has written `closing` is not interrupted. Everything stays within `max_tokens`; with fewer
    than `low` + `room` this is `play.sample`.
    """
    if pace.max_tokens < low + room:
        return await sample(problem, attempts, world, pace, place, start)
    started = await sample(problem, attempts, world, replace(pace, max_tokens=low, in_parts=True), place, start)
    limits = replace(pace, max_tokens=min(high, pace.max_tokens - room)), replace(pace, max_tokens=room)
    ended = (_interrupted(r, low, world, pace, limits, place, words, closing) for r in started)
    return await together(*ended)


async def _interrupted(
    r: Rollout, low: int, world: World, pace: Pace, limits: tuple[Pace, Pace], place: Place, words: str, closing: str
) -> Rollout:
    """An attempt from `low` tokens on: to its cut, and from there to the answer."""
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, r.attempt)
    cut = int(rng.integers(low, limits[0].max_tokens + 1))
    if not _cut_at(r, low):
        return r
    if cut > low:
        rest = replace(pace, max_tokens=cut, in_parts=True)
        (r,) = await sample(r.problem, [r.attempt], world, rest, place, r)
    text = r.segments[-1]
    if not _cut_at(r, cut):
        return r
    if closing in world.text.decode(text.reply().tolist()):
        (r,) = await sample(r.problem, [r.attempt], world, pace, place, r)
        return r
    prompted = text.read(world.text.encode(words), Role.HINT)
    started = r.but(segments=(*r.segments[:-1], prompted))
    (r,) = await sample(r.problem, [r.attempt], world, limits[1], place, started)
    return r


def _cut_at(r: Rollout, limit: int) -> bool:
    """Whether an attempt ended because its turn reached this token limit, and not for any other reason."""
    turn = r.segments[-1].turn
    return r.stop is Stop.LENGTH and int(np.count_nonzero(turn == turn.max())) == limit


@trait("compares_siblings", "by_batch_spread")
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, eps: float = EPS) -> Tensor:  # -> (N, T)
    lead = in_groups(lambda r: r - r.mean(), batch.reward, batch)
    left = in_groups(torch.ones_like, batch.reward, batch).sum().clamp(min=1)  # without uniform groups
    return spread(lead / ((lead.square().sum() / left).sqrt() + eps), batch)


def recipe(**changes: Any) -> Recipe:
    return cispo.recipe(
        name="scalerl",
        choose=partial(choose, rate=0.9),
        play=partial(play, low=10240, high=12288, room=2048),
        select=select.mixed,
        advantage=advantage,
        # lr is for 768 rollouts per step.
        pace=partial(pace.warmed, lr=5e-7, warmup=100, max_tokens=14336),
        groups=48, rollouts=16, max_age=8,
    ).but(**changes)
