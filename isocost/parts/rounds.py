"""Decode strategies that go on from a summary: think, sum up, forget the thoughts, think again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from isocost import chance
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.types import Message, Place, Problem, Rollout, Segment
from isocost.world import World


async def continued(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    rounds: int = 3, states: int = 2, room: int = 256, reason: str = "{summary}", condense: str = "{summary}{trace}",
) -> list[Rollout]:
    """Attempts from `states` of the summaries that up to `rounds` rounds arrive at (Reasoning Cache, arXiv:2602.03773).

    A round is a trace and then a summary of it and of the summary before, `room` tokens at most; the trace is dropped.
    The state after 0 rounds is the problem as posed. States are drawn without replacement, and no further than the
    last of them is rolled in. A round takes two of the attempts, which do not come home (they are charged, and counted
    as cancelled); no more than half of them are spent so, what is left is dealt out over the states, and each is a
    cohort. `reason` and `condense` say what is added to the problem's last message. A start is gone on from as it is,
    and evaluations and profiles measure the policy without summaries.
    """
    if start is not None or place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, *attempts[:1])
    chosen = sorted(rng.permutation(min(rounds, len(attempts) // 4) + 1)[:states].tolist())
    posed, summary, ours = [problem], "", iter(attempts)
    for _ in range(chosen[-1]):
        (trace,) = await sample(posed[-1], [next(ours)], world, pace, place)
        asked = _added(problem, _filled(condense, summary=summary, trace=trace.final))
        (said,) = await sample(asked, [next(ours)], world, replace(pace, max_tokens=room), place)
        summary = said.final
        posed.append(_added(problem, _filled(reason, summary=summary)) if summary else problem)
    left = list(ours)
    dealt = [left[len(left) * k // len(chosen) : len(left) * (k + 1) // len(chosen)] for k in range(len(chosen))]
    made = await asyncio.gather(*(
        sample(posed[state], numbers, world, pace, place) for state, numbers in zip(chosen, dealt, strict=True)
    ))
    return [
        r.but(problem=problem, cohort=f"round {state}") for state, some in zip(chosen, made, strict=True) for r in some
    ]


def _filled(words: str, **known: str) -> str:
    """Words with {name} replaced where it is known; other braces stay, for TeX is full of them."""
    return re.sub(r"{(\w+)}", lambda found: known.get(found[1], found[0]), words)


def _added(problem: Problem, words: str) -> Problem:
    """The same problem with words at the end of its last message."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(last.role, last.content + words)))
