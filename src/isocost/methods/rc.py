"""RC: train to continue from a summary of earlier thoughts, so that thinking can exceed one answer's length.

    s_t ~ π(x, s_{t−1}, z_t),  z_t ~ π(x, s_{t−1});   max E_{t, s_t} E_{z ~ π(x, s_t)} r(z),  s_0 empty
    A_i = (r_i − mean r) / std r among those who share (x, s_t); none for s, nor for the z that led to it
    Wu et al. 2026, "Reasoning Cache", arXiv:2602.03773
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.parts import loss
from isocost.parts.play import sample
from isocost.seams import Attempts, Pace, Recipe
from isocost.strategies import rounds as answering
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Reasoning Cache", "2602.03773", 2026, "grpo", "Accuracy rises with rounds to four times those trained on.")
walked = answering.play
SUMMARIES, ROUNDS = "summaries", "rounds"    # the ledger keeps summaries under this name; rounds since the problem


@asks("text")
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

    async def say(posed: Problem, numbers: Sequence[int], most: int = 0) -> list[Rollout]:
        return await sample(posed, numbers, world, replace(pace, max_tokens=most) if most else pace, place)

    ours = iter(attempts)
    posed, _ = await _rounds(problem, ours, say, chosen[-1], "", room, reason, condense)
    return await _branched(problem, list(ours), say, posed, chosen, 0)


Say = Callable[..., Coroutine[Any, Any, list[Rollout]]]       # (problem, attempts, most tokens or 0) -> rollouts


async def _rounds(
    problem: Problem, numbers: Iterator[int], say: Say, count: int, summary: str, room: int, reason: str, condense: str
) -> tuple[list[Problem], list[Rollout]]:
    """The problem as posed before and after each of `count` rounds from a summary, and the summaries' rollouts."""
    posed, said = [answering.posed(problem, reason, summary)], []
    for _ in range(count):
        (trace,) = await say(posed[-1], [next(numbers)])
        asked = answering.added(problem, answering.filled(condense, summary=summary, trace=trace.final))
        said += await say(asked, [next(numbers)], room)
        summary = said[-1].final
        posed.append(answering.posed(problem, reason, summary))
    return posed, said


async def _branched(
    problem: Problem, left: Sequence[int], say: Say, posed: Sequence[Problem], chosen: Sequence[int], depth: int
) -> list[Rollout]:
    """These attempts, dealt over the chosen states; each state is a cohort, named by its rounds since the problem."""
    dealt = [left[len(left) * k // len(chosen) : len(left) * (k + 1) // len(chosen)] for k in range(len(chosen))]
    made = await together(*(say(posed[state], own) for state, own in zip(chosen, dealt, strict=True)))
    return [
        r.but(problem=problem, cohort=f"round {depth + state}")
        for state, rollouts in zip(chosen, made, strict=True) for r in rollouts
    ]


@trait("in_parts", "casts_roles", "not_as_posed")
@bounds(rounds="[1, inf)", states="[1, inf)", room="[1, inf)")
async def buffered(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    rounds: int = 3, states: int = 2, room: int = 256, reason: str = "{summary}", condense: str = "{summary}{trace}",
) -> list[Rollout]:
    """`rc.play` as a schedule that starts from earlier summaries: the paper's summary replay buffer.

    The ledger keeps the summaries of a problem's latest rounds. When the problem is drawn again, one of them, each
    equally likely, is the start instead of the problem as posed, and the summaries of `rounds` more rounds replace
    them: the horizon grows by up to `rounds` per epoch. All rounds are played, also those after the last state drawn.
    Settings are those of `rc.play`; `play` itself must sample plainly. Waves that overlap read what earlier ones kept.
    """
    place = play.place
    rng = chance.generator(place.seed, chance.Purpose.FORK, place.purpose, place.wave, place.slot, *attempts[:1])
    known = [g for g in ledger.kept[SUMMARIES] if g.problem.id == problem.id and g.place.wave < place.wave]
    depth, summary = 0, ""
    if known:
        latest = max(known, key=_when).rollouts
        start = latest[int(rng.integers(len(latest)))]
        depth, summary = int(start.notes[ROUNDS]), start.final  # type: ignore[arg-type]
    count = min(rounds, len(attempts) // 4)
    chosen = sorted(rng.permutation(count + 1)[:states].tolist())

    async def say(posed: Problem, numbers: Sequence[int], most: int = 0) -> list[Rollout]:
        return await play(posed, numbers, max_tokens=most)

    ours = iter(attempts)
    posed, said = await _rounds(problem, ours, say, count, summary, room, reason, condense)
    if said:
        noted = tuple(r.but(problem=problem, notes={ROUNDS: float(depth + k)}) for k, r in enumerate(said, 1))
        others = [g for g in ledger.kept[SUMMARIES] if not any(g is old for old in known)]
        ledger.kept[SUMMARIES] = sorted([*others, Group(problem, noted, place)], key=_when)
    return await _branched(problem, list(ours), say, posed, chosen, depth)


def _when(group: Group) -> tuple[int, int]:
    return group.place.wave, group.place.slot


def recipe(**changes: Any) -> Recipe:
    # Three rounds, two states, the empty one among them as in the released code; 8 attempts at each and those that
    # three rounds use make 22. A chat model needs words around the summary, which the small worlds here cannot spell:
    # play.reason and play.condense. Left out: the KL of 0.001, and the curriculum, which samples problems by difficulty
    # in two stages. Evaluations sample without summaries; rc.walked measures the effect of rounds, also beyond those
    # trained on.
    rounds = partial(play, rounds=3, states=2)
    clip = partial(loss.clipped, low=0.2, high=0.28)
    return grpo.recipe(name="rc", play=rounds, loss=clip, rollouts=22).but(**changes)
