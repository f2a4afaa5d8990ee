"""UI-S1: walk along an expert's dialogue; keep the policy's turns that match it, and patch the first that do not.

    r_t = 1/T if turn t is the expert's, else 0;   R_t = r_t + γ R_{t+1}, but R_t = r_t where turn t was patched
    A = w_E (Σ r − mean) / std  +  w_S (R_t − mean) / std among the turns t of the attempts at one problem
    Lu et al. 2025, arXiv:2509.11543
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, gigpo, grpo
from isocost.methods.cleaner import APART
from isocost.ops import EPS, in_states, spread_turns, to_go, turns_of
from isocost.parts import pace as paces
from isocost.parts.play import lent, paused, sample, turn_starts, until
from isocost.parts.reward import verified
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Said, Score, Segment, Stop, Turn
from isocost.world import World

CARD = Card(
    "UI-S1", "2509.11543", 2025, "grpo", "Walking along demonstrations teaches more than learning step by step.",
)
EXPERT = "expert"     # in a problem's meta: what the expert says, turn by turn
MATCHES = "matches"   # the part of the score that is the share of the expert's turns

needs = gigpo.needs


@trait("not_as_posed", "needs_turns")
@bounds(patches="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, patches: int = 2,
) -> list[Rollout]:
    """Dialogues along the expert's one, `problem.meta["expert"]`: what it says in each turn (UI-S1, arXiv:2509.11543).

    A turn that is not the expert's is replaced by it, up to `patches` times, and the next one ends the dialogue. The
    expert's words have no credit; the turn that they replaced has, in a segment of its own. Each turn's reward is its
    part of the expert's turns if it matches, and its key is its number. Problems without an expert, a start, and
    attempts outside of training are sampled plainly.
    """
    expert = tuple(problem.meta.get(EXPERT) or ())
    if place.purpose != chance.Purpose.TRAIN or start is not None or not expert:
        return await sample(problem, attempts, world, pace, place, start)
    return await together(*(_along(problem, a, expert, world, pace, place, patches) for a in attempts))


async def _along(
    problem: Problem, attempt: int, expert: tuple[str, ...], world: World, pace: Pace, place: Place, patches: int
) -> Rollout:
    now: Rollout | None = None
    wrong: list[Segment] = []       # a segment for each turn that was replaced
    patched: list[int] = []
    pause = partial(_left, expert=expert)
    while True:
        number = attempt + APART * len(patched)
        start = now and now.but(attempt=number)
        (said,) = await until(problem, [number], world, pace, place, start, pause=pause)
        t, text = len(said.turns) - 1, said.segments[-1]
        if not paused(said) or len(patched) == patches or _said(text, t, world) == expert[t]:
            return _rewarded(said.but(attempt=attempt), expert, wrong, patched, world)
        at = turn_starts(text)[t]
        wrong.append(lent(said.but(segments=(text.cut(int(np.flatnonzero(text.turn == t)[-1]) + 1),)), at).segments[0])
        patched.append(t)
        words = np.array([*world.text.encode(expert[t]), world.text.ends[0]])
        kept = tuple(words[:, None]) if pace.sampling.truncates else ()
        version = np.full(len(words), world.engine.version)
        theirs = Said(words, np.zeros(len(words), np.float32), version, Stop.DONE, kept)
        before = said.cut(at)
        now = before.but(segments=(*before.segments[:-1], before.segments[-1].wrote(theirs)))


def _said(text: Segment, turn: int, world: World) -> str:
    return world.text.decode(text.tokens[text.turn == turn].tolist())


def _left(messages: Sequence[Message], turns: Sequence[Turn], *, expert: Sequence[str]) -> bool:
    """Whether the last turn is not what the expert said, or the expert has no more to say."""
    said = [m.content for m in messages if m.role == "assistant"]
    return len(turns) >= len(expert) or said[-1] != expert[len(turns) - 1]


def _rewarded(
    rollout: Rollout, expert: tuple[str, ...], wrong: Sequence[Segment], patched: Sequence[int], world: World
) -> Rollout:
    """The dialogue with rewards for matches; the expert's words are TEACHER, what they replaced has its segments."""
    text, each = rollout.segments[-1], []
    for t, turn in enumerate(rollout.turns):
        matched = t not in patched and t < len(expert) and _said(text, t, world) == expert[t]
        each.append(replace(turn, key=f"turn {t}", reward=matched / len(expert)))
    theirs = np.isin(text.turn, patched) & text.own
    main = replace(
        text, role=np.where(theirs, int(Role.TEACHER), text.role), turn=np.where(theirs, -1, text.turn),
        version=np.where(theirs, -1, text.version),
        kept=tuple(k for k, out in zip(text.kept, theirs[text.own].tolist(), strict=False) if not out),
    )
    return rollout.but(segments=(main, *wrong), turns=tuple(each))


@trait("not_whether_right")
async def reward(group: Group, world: World) -> Group:
    """The share of the expert's turns that an attempt matched, as the value; the verifier's score without an expert."""
    group = await verified(group, world)
    if not group.problem.meta.get(EXPERT):
        return group
    return group.of(r if r.stop is Stop.ERROR else r.scored(_matches(r)) for r in group.rollouts)


def _matches(rollout: Rollout) -> Score:
    """Sum of the rewards of the turns, which is the value and a part."""
    share = float(sum(t.reward for t in rollout.turns))
    return Score(share, {MATCHES: share}, tuple(t.reward for t in rollout.turns))


@trait("compares_siblings", "by_token", "by_group_spread", "needs_turns")
@bounds(gamma="[0, 1]", episode="[0, inf)", step="[0, inf)", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 0.5, episode: float = 1.0, step: float = 1.0, eps: float = EPS
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    ahead = to_go(turns, gamma=gamma * (turns.reward > 0).to(turns.reward))
    each = in_states(ahead, turns.key, std=True, eps=eps)
    return episode * grpo.advantage(batch, ledger, eps=eps) + step * spread_turns(each, turns, batch)


def recipe(**changes: Any) -> Recipe:
    # Two patches and γ = 0.5 are the paper's, of its variants the one that patches an action without thoughts. A match
    # is of the whole turn, word for word, and pays 1/T where the paper weighs form, type and match. The mean
    # of an episode's group is over attempts; in the release it is over their steps, so that long ones count more. Left
    # out: the KL term of 1e-4, and that groups with a spread below 0.3 are dropped.
    along = partial(play, patches=2)
    credit = partial(advantage, gamma=0.5, episode=1.0, step=1.0)
    return grpo.recipe(
        name="uis1", play=along, reward=reward, advantage=credit, pace=partial(paces.warmed, max_turns=30)
    ).but(**changes)
