"""Rounds: think, summarise, and think again from the summary alone, so that thinking may exceed one context.

    z_k ~ π(x, s_{k−1}),  s_k ~ π(x, s_{k−1}, z_k),  s_0 empty;   the answer is z after the last summary
    Wu et al. 2026, "Reasoning Cache", arXiv:2602.03773
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from isocost import chance
from isocost.errors import UserError
from isocost.gather import together
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, written
from isocost.traits import bounds
from isocost.types import Message, Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Reasoning Cache", "2602.03773", 2026, "one", "Accuracy rises with rounds to four times those trained on.")
SIZE = "rounds"     # what a study varies


@bounds(rounds="[0, inf)", room="[1, inf)")
async def play(
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
        raise UserError("strategy rounds is for evaluations only; to train on rounds use play=rc.play")
    first_traces = await sample(problem, attempts, world, pace, place, start)

    async def walk(thought: Rollout) -> Rollout:
        """The given number of rounds from a first trace; the answer is the trace after the last round."""
        attempt, summary, seen = [thought.attempt], "", thought.segments
        for k in range(1, rounds + 1):
            before, now = (replace(place, wave=place.wave + w) for w in (2 * k - 1, 2 * k))
            asked = added(problem, filled(condense, summary=summary, trace=thought.final))
            (said,) = await sample(asked, attempt, world, replace(pace, max_tokens=room), before)
            summary = said.final
            (thought,) = await sample(posed(problem, reason, summary), attempt, world, pace, now)
            seen += (*said.segments, *thought.segments)
        end = Path(thought.but(problem=problem, segments=seen), over=True)
        answer = Answer(problem, thought.attempt, world, pace, place, tries=1 + 2 * rounds, depth=written(end.rollout))
        return answer.end(end, end)

    return await together(*map(walk, first_traces))


def added(problem: Problem, words: str) -> Problem:
    """The same problem with words at the end of its last message."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(last.role, last.content + words)))


def filled(words: str, **known: str) -> str:
    """Words with {name} replaced where a value is known; other braces stay, because TeX uses them."""
    return re.sub(r"{(\w+)}", lambda found: known.get(found[1], found[0]), words)


def posed(problem: Problem, reason: str, summary: str) -> Problem:
    """The problem with the summary to continue from; unchanged if the summary is empty."""
    return added(problem, filled(reason, summary=summary)) if summary else problem
