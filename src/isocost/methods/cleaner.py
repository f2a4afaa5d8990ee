"""CLEANER: where a failed call is put right by the next, train on the dialogue in which it was right at once.

    turns u .. v − 1 failed, v did not, v − u ≤ 3:  go back to before u, put v there, and go on from v's answer
    shallow where similar(call u, call v) ≥ 0.5: the reasoning of u with the call of v;  else all of v
    log-probs of what was put there are computed in the clean context     Xu et al. 2026, arXiv:2601.15141
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, gigpo, grpo
from isocost.pack import pack
from isocost.parts import loss, weight
from isocost.parts import pace as paces
from isocost.parts.play import paused, sample, turn_starts, until
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Message, Place, Problem, Rollout, Said, Score, Segment, Stop, Turn
from isocost.world import Text, World

CARD = Card("CLEANER", "2601.15141", 2026, "grpo", "Failed calls become rarer in a third of the steps.")
APART = 4096          # between the numbers of a dialogue's parts, so that no two parts share random numbers

needs = gigpo.needs


@trait("not_as_posed", "needs_turns")
@bounds(retries="[1, inf)", similar="[0, inf)", share="[0, 1]")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *,
    retries: int = 3, similar: float = 0.5, share: float = 0.7, opens: str = "<tool_call>",
) -> list[Rollout]:
    """Dialogues without the failed calls that the policy put right itself (CLEANER, arXiv:2601.15141).

    After a turn without a fault that follows up to `retries` turns with one, the dialogue goes back to before the first
    of these. The right turn takes its place, with the answer and the luck that it had; of a turn whose call (from
    `opens` on) is at least `similar` to the right one, the words before the call stay. The dialogue then continues.
    What was put there is the policy's own, with the log-probs that it has in its new context, charged as `score`
    tokens. A share `share` of the attempts is treated so, and only in training. Where an environment answers
    differently without the failed calls, the dialogue continues as it was. Requires dialogues of one segment.
    """
    if place.purpose != chance.Purpose.TRAIN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    address = (place.purpose, place.wave, place.slot)
    chosen = [a for a in attempts
              if chance.generator(place.seed, chance.Purpose.SELECT, *address, a).random() < share]
    plain = sample(problem, [a for a in attempts if a not in chosen], world, pace, place)
    clean = (_clean(problem, a, world, pace, place, retries, similar, opens) for a in chosen)
    made = await together(plain, *clean)
    return sorted((r for each in made for r in each), key=lambda r: r.attempt)


async def _clean(
    problem: Problem, attempt: int, world: World, pace: Pace, place: Place, retries: int, similar: float, opens: str
) -> list[Rollout]:
    now: Rollout | None = None
    raw: Rollout | None = None      # as it was before the last repair
    for part in range(pace.max_turns * (retries + 1)):
        since = len(now.turns) if now else 0
        pause = partial(_put_right, since=since, retries=retries)
        number = attempt + APART * part
        start = now and now.but(attempt=number)
        (said,) = await until(problem, [number], world, pace, place, start, pause=pause)
        if raw is not None and said.stop is Stop.ERROR and len(said.turns) <= since:
            now, raw = raw, None     # it answered differently
            continue
        if not paused(said):
            ended_right = said.stop is not Stop.ERROR and pause((), said.turns)
            last = repaired(said, world, place, similar, opens) if ended_right else said
            return [last.but(attempt=attempt)]
        now, raw = repaired(said, world, place, similar, opens), said
    return [said.but(attempt=attempt)]


def _put_right(messages: Sequence[Message], turns: Sequence[Turn], *, since: int, retries: int) -> bool:
    """Whether the last turn is the first without a fault after at most `retries` with one, all after `since`."""
    return 0 < failed_before(turns) <= min(retries, len(turns) - 1 - since)


def failed_before(turns: Sequence[Turn]) -> int:
    """How many turns in a row had a fault before the last one; 0 if that has one as well."""
    if not turns or turns[-1].fault is not None:
        return 0
    return next((k for k, t in enumerate(reversed(turns[:-1])) if t.fault is None), len(turns) - 1)


def repaired(rollout: Rollout, world: World, place: Place, similar: float, opens: str) -> Rollout:
    """A dialogue with its last turn in the place of the failed ones before it."""
    text, last = rollout.segments[-1], len(rollout.turns) - 1
    first = last - failed_before(rollout.turns)
    begin = turn_starts(text)
    own = np.flatnonzero(text.turn == last)
    seen = text.tokens[own[-1] + 1 :]
    words, kept = text.tokens[own], text.kept[-len(own) :] if text.kept else ()
    bad = text.tokens[text.turn == first]
    cut, call = (_call(x, opens, world.text) for x in (bad, words))
    if cut and call and _similar(bad[cut:], words[call:], world.text) >= similar:
        words = np.concatenate([bad[:cut], words[call:]])
        failed = int((text.turn[: begin[first]] >= 0).sum())
        kept = (*text.kept[failed : failed + cut], *kept[call:]) if kept else ()
    never = Said(words, np.zeros(len(words), np.float32), np.full(len(words), world.engine.version), Stop.DONE, kept)
    clean = text.cut(begin[first]).wrote(never).read(seen)
    at = np.arange(begin[first], begin[first] + len(words))
    turns = (*rollout.turns[:first], replace(rollout.turns[last], key=rollout.turns[first].key))
    made = rollout.but(segments=(*rollout.segments[:-1], clean), turns=turns)
    logp = clean.logp.copy()
    logp[at] = _scored(made, world, place)[at]
    return made.but(segments=(*rollout.segments[:-1], replace(clean, logp=logp)))


def _call(tokens: ndarray, opens: str, text: Text) -> int:
    """How many tokens a turn has before its call; 0 if nothing opens one, or nothing is before it."""
    if not opens or opens not in text.decode(tokens.tolist()):
        return 0
    return next(k for k in range(len(tokens)) if opens in text.decode(tokens[: k + 1].tolist()))


def _similar(one: ndarray, other: ndarray, text: Text) -> float:
    """The share of characters that two calls have in common, in order: `difflib`'s ratio."""
    return SequenceMatcher(None, text.decode(one.tolist()), text.decode(other.tolist())).ratio()


def _scored(rollout: Rollout, world: World, place: Place) -> ndarray:
    """Log-probs of a dialogue's last segment under the current policy; charged as `score` tokens."""
    whole = rollout.but(segments=rollout.segments[-1:]).scored(Score(0.0))      # any score serves
    batch = pack([Group(rollout.problem, (whole,), place)], world.engine.version)
    return world.learner.score(batch).logp[0].float().cpu().numpy()


def recipe(**changes: Any) -> Recipe:
    # Three retries, 0.5 and 0.7 are the paper's. A turn without `opens` has no words before its call, and is replaced
    # whole. The clip is DAPO's, on which the paper builds.
    mended = partial(play, retries=3, similar=0.5, share=0.7, opens="<tool_call>")
    return grpo.recipe(
        name="cleaner", play=mended, loss=partial(loss.clipped, low=0.2, high=0.28), weight=weight.token_mean,
        pace=partial(paces.warmed, max_turns=10), rollouts=16,
    ).but(**changes)
