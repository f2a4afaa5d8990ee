"""RC: train to continue from a summary of earlier thoughts, so that thinking can exceed one answer's length.

    s_t ~ π(x, s_{t−1}, z_t),  z_t ~ π(x, s_{t−1});   max E_{t, s_t} E_{z ~ π(x, s_t)} r(z),  s_0 empty
    A_i = (r_i − mean r) / std r among those who share (x, s_t); none for s, nor for the z that led to it
    Wu et al. 2026, "Reasoning Cache", arXiv:2602.03773
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isocost import chance
from isocost.errors import UserError
from isocost.methods import Card, grpo
from isocost.parts import loss
from isocost.parts.play import sample
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Message, Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Reasoning Cache", "2602.03773", 2026, "grpo", "Accuracy rises with rounds to four times those trained on.")


@trait("one_call", "casts_roles", "not_as_posed")
@bounds(rounds="[0, inf)", states="[1, inf)", room="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    rounds: int = 3, states: int = 2, room: int = 256, reason: str = "{summary}", condense: str = "{summary}{trace}",
) -> list[Rollout]:
    """Attempts from `states` of the summaries after up to `rounds` rounds (Reasoning Cache, arXiv:2602.03773).

    A round is a trace and then a summary of it and of the previous summary, at most `room` tokens; the trace is
    dropped. The state after 0 rounds is the problem as posed. States are drawn without replacement, and rounds end at
    the last state drawn. A round uses two of the attempts, which are charged and counted as cancelled; at most half of
    the attempts are used so. The rest are distributed over the states, and each state is a cohort. `reason` and
    `condense` are the words added to the problem's last message. A start is continued as it is. Evaluations and
    profiles measure the policy without summaries; `walked` measures it with them.
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
        posed.append(_posed(problem, reason, summary))
    left = list(ours)
    dealt = [left[len(left) * k // len(chosen) : len(left) * (k + 1) // len(chosen)] for k in range(len(chosen))]
    made = await asyncio.gather(*(
        sample(posed[state], numbers, world, pace, place) for state, numbers in zip(chosen, dealt, strict=True)
    ))
    return [
        r.but(problem=problem, cohort=f"round {state}")
        for state, rollouts in zip(chosen, made, strict=True) for r in rollouts
    ]


def _added(problem: Problem, words: str) -> Problem:
    """The same problem with words at the end of its last message."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(last.role, last.content + words)))


def _filled(words: str, **known: str) -> str:
    """Words with {name} replaced where a value is known; other braces stay, because TeX uses them."""
    return re.sub(r"{(\w+)}", lambda found: known.get(found[1], found[0]), words)


def _posed(problem: Problem, reason: str, summary: str) -> Problem:
    """The problem with the summary to continue from; unchanged if the summary is empty."""
    return _added(problem, _filled(reason, summary=summary)) if summary else problem


@bounds(rounds="[0, inf)", room="[1, inf)")
async def walked(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    rounds: int = 3, room: int = 256, reason: str = "{summary}", condense: str = "{summary}{trace}",
) -> list[Rollout]:
    """Attempts with `rounds` rounds each and then an answer: the evaluation of Reasoning Cache.

    Settings are those of `rc.play`; no round is skipped. A round costs two rollouts, each with its tokens, all of them
    segments of the attempt; the verifier reads the answer alone. Each trace and each summary has the random numbers of
    a separate wave, so an answer after k rounds is, token for token, the trace that a longer walk continues from, and
    after none it is a plain sample. Raises UserError in training, where attempts with different summaries would be
    compared.
    """
    if place.purpose == chance.Purpose.TRAIN:
        raise UserError("rc.walked is for evaluations only; to train on rounds use play=rc.play")
    first_traces = await sample(problem, attempts, world, pace, place, start)
    each = (_walk(problem, thought, world, pace, place, rounds, room, reason, condense) for thought in first_traces)
    return list(await asyncio.gather(*each))


async def _walk(
    problem: Problem, thought: Rollout, world: World, pace: Pace, place: Place, rounds: int, room: int, reason: str,
    condense: str,
) -> Rollout:
    """The given number of rounds from a first trace; the answer is the trace after the last round."""
    attempt, summary, seen = [thought.attempt], "", thought.segments
    for k in range(1, rounds + 1):
        before, now = (replace(place, wave=place.wave + w) for w in (2 * k - 1, 2 * k))
        asked = _added(problem, _filled(condense, summary=summary, trace=thought.final))
        (said,) = await sample(asked, attempt, world, replace(pace, max_tokens=room), before)
        summary = said.final
        (thought,) = await sample(_posed(problem, reason, summary), attempt, world, pace, now)
        seen += (*said.segments, *thought.segments)
    return thought.but(problem=problem, segments=seen)


def recipe(**changes: Any) -> Recipe:
    # Three rounds, two states, the empty one among them as in the released code; 8 attempts at each and those that
    # three rounds use make 22. A chat model needs words around the summary, which the small worlds here cannot spell:
    # play.reason and play.condense. The KL of 0.001 is left out. Evaluations sample without summaries; rc.walked
    # measures the effect of rounds, also beyond those trained on.
    rounds = partial(play, rounds=3, states=2)
    clip = partial(loss.clipped, low=0.2, high=0.28)
    return grpo.recipe(name="rc", play=rounds, loss=clip, rollouts=22).but(**changes)
