"""Decode strategies that cut a trace of thought short and ask for the answer there.

Whoever goes on from a cut is an attempt of its own, counted and charged like any other: what stands before the cut is
given to it, so no credit falls on it there. All need the attempts of a group in one call (`schedule.together`).
Evaluations and profiles measure the policy: there `anytime` and `halted` are `sample`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from math import ceil

import numpy as np

from isocost import chance
from isocost.errors import UserError
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.types import Group, Place, Problem, Role, Rollout, Segment, Stop
from isocost.world import World

TIME_IS_UP = "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
# What a function declares that reads what one of these plays has noted.
reads_budgets = requires(
    "answers at budgets", at="play",
    why="it goes by answers at several budgets, and this play asks for none; forced.anytime does",
)
reads_stops = requires(
    "stops", at="play",
    why="it measures from siblings that stopped at the same prefix, and here nobody stops; forced.halted stops some",
)
SCOUT, STOPPED = "scout", "stopped"     # cohorts of `halted`; those who go on have none


@trait("one_call", "casts_roles", "not_as_posed")
@gives("answers at budgets")
@shares(budgets="shares")
@bounds(shares="(0, 1]", answers="[1, inf)", room="[1, inf)")
async def anytime(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    shares: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0), answers: int = 2, words: str = "", room: int = 128,
) -> list[Rollout]:
    """Traces, and after each share of `max_tokens` some answers to what was thought until then (arXiv:2505.13438).

    A trace comes with `answers` answers per budget; so n attempts hold n // (1 + budgets · answers) traces, at least
    one, and all others are answers. They begin with `words`, take `room` tokens at most, and say where they come
    from: `parent` is (trace, token), the cohort "trace.budget". Budgets that a trace does not reach share one.
    """
    if place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    if len(attempts) <= len(shares):
        raise UserError(f"a trace with answers at {len(shares)} budgets takes {1 + len(shares)} rollouts or more")
    count = max(len(attempts) // (1 + len(shares) * answers), 1)
    traces = await sample(problem, attempts[:count], world, pace, place, start)
    cells = [(t, cut) for t in traces for cut in _budgets(t.segments[-1], shares, pace, world)]
    wanted, left = Counter(islice(cycle(range(len(cells))), len(attempts) - count)), iter(attempts[count:])
    asked: dict[tuple[int, int], list[int]] = {}
    for k, (trace, cut) in enumerate(cells):
        asked.setdefault((trace.attempt, cut), []).extend(islice(left, wanted[k]))
    thought = {t.attempt: t.segments[-1] for t in traces}
    short, hint = replace(pace, max_tokens=min(room, pace.max_tokens)), world.text.encode(words)
    said = await asyncio.gather(*(
        sample(problem, numbers, world, short, place, given(thought[trace], cut, hint))
        for (trace, cut), numbers in asked.items()
    ))
    budget = {key: sum(k[0] == key[0] for k in list(asked)[:at]) for at, key in enumerate(asked)}
    named = ((f"{key[0]}.{budget[key]}", key, a) for key, group in zip(asked, said, strict=True) for a in group)
    return [*traces, *(a.but(cohort=cohort, parent=parent) for cohort, parent, a in named)]


@trait("one_call", "casts_roles", "not_as_posed")
@gives("stops")
@bounds(stopping="(0, 1)", room="[1, inf)")
async def halted(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    boundary: str = "\n\n", stopping: float = 0.5, words: str = "", room: int = 128,
) -> list[Rollout]:
    """From a random place in a trace some stop and answer, the others think on (MRT, arXiv:2503.07572).

    The first attempt is the scout, whose trace is cut at the end of one of its episodes (`boundary` ends one), or
    before the first. A `stopping` share of the rest answers there, as `anytime` does; what remains continues.
    """
    if place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    if len(attempts) < 3:
        raise UserError("a scout, one that stops and one that goes on take 3 rollouts or more")
    (scout,) = await sample(problem, attempts[:1], world, pace, place, start)
    text = scout.segments[-1]
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, scout.attempt)
    cut = int(rng.choice(episodes(text, boundary, world.text.decode)))
    at = 1 + min(max(int(stopping * (len(attempts) - 1)), 1), len(attempts) - 2)
    hint, thought = world.text.encode(words), text.cut(cut).written
    short = replace(pace, max_tokens=min(room, pace.max_tokens))
    stopped, others = await asyncio.gather(
        sample(problem, attempts[1:at], world, short, place, given(text, cut, hint)),
        sample(problem, attempts[at:], world, replace(pace, max_tokens=max(pace.max_tokens - thought, 1)), place,
               given(text, cut)),
    )
    parent = (scout.attempt, cut)
    return [scout.but(cohort=SCOUT), *(r.but(cohort=STOPPED, parent=parent) for r in stopped),
            *(r.but(parent=parent) for r in others)]


@trait("forces_end")
@bounds(low="[1, inf)", high="[1, inf)", room="[1, inf)")
async def interrupted(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    low: int = 10240, high: int = 12288, room: int = 2048, words: str = TIME_IS_UP, closing: str = "</think>",
) -> list[Rollout]:
    """Whoever still thinks after `low` to `high` tokens, a number of its own, reads `words` (arXiv:2510.13786).

    It then has `room` tokens to answer (ScaleRL's forced interruption). No credit falls on the words; whoever has
    written `closing` is left alone. All of it stays within `max_tokens`; with fewer than `low` + `room` this is
    `sample`.
    """
    if pace.max_tokens < low + room:
        return await sample(problem, attempts, world, pace, place, start)
    begun = await sample(problem, attempts, world, replace(pace, max_tokens=low, in_parts=True), place, start)
    limits = replace(pace, max_tokens=min(high, pace.max_tokens - room)), replace(pace, max_tokens=room)
    return list(await asyncio.gather(*(_told(r, low, world, pace, limits, place, words, closing) for r in begun)))


async def _told(
    r: Rollout, low: int, world: World, pace: Pace, limits: tuple[Pace, Pace], place: Place, words: str, closing: str
) -> Rollout:
    """From `low` tokens on: to the cut, and from there to the answer."""
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, r.attempt)
    cut = int(rng.integers(low, limits[0].max_tokens + 1))
    if not _cut_at(r, low):
        return r
    if cut > low:
        rest = replace(pace, max_tokens=cut, in_parts=True)
        (r,) = await sample(r.problem, [r.attempt], world, rest, place, r.segments[-1])
    text = r.segments[-1]
    if not _cut_at(r, cut):
        return r
    if closing in world.text.decode(text.reply().tolist()):
        (r,) = await sample(r.problem, [r.attempt], world, pace, place, text)
        return r
    told = text.read(world.text.encode(words), Role.HINT)
    (r,) = await sample(r.problem, [r.attempt], world, limits[1], place, told)
    return r


def _cut_at(r: Rollout, limit: int) -> bool:
    """Whether an attempt ended because its turn had no more than so many tokens, and not for any other limit."""
    turn = r.segments[-1].turn
    return r.stop is Stop.LENGTH and int(np.count_nonzero(turn == turn.max())) == limit


def given(text: Segment, upto: int, words: Sequence[int] = ()) -> Segment:
    """The first tokens of an attempt, and then words, as a start that others are given: HINT, no longer OWN."""
    start, never = text.cut(upto), np.full(upto, -1)
    role = np.where(start.own, int(Role.HINT), start.role)
    whole = Segment(start.tokens, role, np.zeros_like(start.logp), never, never, start.sampling)
    return whole.read(words, Role.HINT) if len(words) else whole


def episodes(text: Segment, boundary: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Where an episode of a trace may end and the next begin: before its first token, and after each boundary."""
    own = np.flatnonzero(text.own)
    ends = [t + 1 for t in own[:-1].tolist() if decode(text.tokens[max(own[0], t - 3) : t + 1].tolist())
            .endswith(boundary)]      # four tokens hold any boundary, however it is split
    return [int(own[0]), *ends] if len(own) else [len(text)]


def _budgets(text: Segment, shares: Sequence[float], pace: Pace, world: World) -> list[int]:
    """Where each budget cuts a trace; at its end, less the token that ends it, where it was over before."""
    own = np.flatnonzero(text.own)
    thought = own[:-1] if len(own) and text.tokens[own[-1]] in world.text.ends else own
    spent = [min(ceil(share * pace.max_tokens), len(thought)) for share in shares]
    return [int(thought[k - 1]) + 1 if k else int(own[0]) for k in spent]


def scores(group: Group, trace: int, budgets: int) -> tuple[list[float], list[int]]:
    """What the answers to a trace of `anytime` earned at each budget on average, and where the cuts are.

    A trace that ended early has fewer cuts than budgets; the last holds for the rest. Nothing is known of a trace
    of which all answers at some cut have no score: ([], []).
    """
    earned: dict[int, list[float]] = {}
    for r in group.rollouts:
        if r.parent is not None and r.parent[0] == trace and r.score is not None:
            earned.setdefault(int(r.cohort.partition(".")[2]), []).append(r.score.value)
    cuts = sorted({r.parent[1] for r in group.rollouts if r.parent is not None and r.parent[0] == trace})
    if not earned or sorted(earned) != list(range(len(cuts))):
        return [], []
    if len(cuts) > budgets:
        raise UserError(f"answers come at {len(cuts)} budgets, of which {budgets} have a prior")
    return [sum(x) / len(x) for x in (earned[min(s, len(cuts) - 1)] for s in range(budgets))], cuts
