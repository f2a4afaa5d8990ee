"""What each attempt of a finished group was worth. A verifier that failed gives no score, never a zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from isocost.traits import bounds, gives, trait
from isocost.types import Group, Role, Rollout, Score, Segment, Stop
from isocost.world import World


async def verified(group: Group, world: World) -> Group:
    """What the verifier says, asked once. An attempt whose environment failed is not shown to it, and has no score.

    A group that is added to in phases is scored after each; who has a mark keeps it.
    """
    unseen = [r for r in group.rollouts if r.mark is None and r.stop is not Stop.ERROR]
    marks = iter(await world.grade(unseen))
    return group.of([
        r if r.stop is Stop.ERROR else r.marked(next(marks)) if r.mark is None else r.scored(r.mark)
        for r in group.rollouts
    ])


@bounds(penalty="[0, inf)", limit="[0, inf)", cache="[0, inf)")
async def verified_unless_cut(
    group: Group, world: World, *, penalty: float = 0.5, limit: int = 0, cache: int = 0
) -> Group:
    """What the verifier says, less a penalty for running out of room (DAPO, arXiv:2503.14476).

    The penalty is 0 up to `limit - cache` sampled tokens, grows linearly to `penalty` at `limit`, and is `penalty`
    for whatever was cut. With `cache` 0 only what was cut is charged. Parts: `right` (unshaped) and `overlong`.
    """
    group = await verified(group, world)
    return group.of(_charged(r, penalty * _overlong(r, limit, cache)) for r in group.rollouts)


@trait("not_whether_right")
@bounds(limit="[0, inf)")
async def verified_and_short(group: Group, world: World, *, limit: int = 4000, given: bool = False) -> Group:
    """What the verifier says, plus 1 for at most `limit` sampled tokens; with `given`, only if the answer is right.

    Parts: `right` and `short`. The condition keeps a policy from trading the hard reward for the easy one (GDPO,
    arXiv:2601.05242).
    """
    group = await verified(group, world)
    return group.of(_with_short(r, k <= limit, given) for r, k in zip(group.rollouts, group.lengths, strict=True))


def _with_short(rollout: Rollout, within: bool, given: bool) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    short = float(within and (score.value > 0 or not given))
    return rollout.scored(replace(score, value=score.value + short, parts={"right": score.value, "short": short}))


def _charged(rollout: Rollout, fine: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    parts = {**score.parts, "right": score.value, "overlong": -fine}
    return rollout.but(score=replace(score, value=score.value - fine, parts=parts))


def _overlong(rollout: Rollout, limit: int, cache: int) -> float:
    if rollout.stop is Stop.LENGTH:
        return 1.0
    written = sum(int(s.own.sum()) for s in rollout.segments)
    return min(max((written - (limit - cache)) / cache, 0.0), 1.0) if cache else 0.0


@gives("faults")
async def verified_with_faults(
    group: Group, world: World, *, failed: str = "error", opens: str = "<answer>", closes: str = "</answer>"
) -> Group:
    """What the verifier says; beside it, as the part `faults`, how badly it was come by (GRPO-RoC, arXiv:2508.20722).

    Faults of the tools: the share of the environment's answers that hold the word `failed`; a half where nothing was
    asked. Faults of form: 1 where answer tags are missing or unmatched, else every answer after the first, per turn,
    1 at most. The value is the verifier's alone.
    """
    group = await verified(group, world)
    return group.of(_with_faults(r, world, failed, opens, closes) for r in group.rollouts)


def _with_faults(rollout: Rollout, world: World, failed: str, opens: str, closes: str) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    told = [text.lower() for s in rollout.segments for text in _spoken(s, int(Role.SEEN), world)]
    said = [text for s in rollout.segments for text in _spoken(s, int(Role.OWN), world)]
    tools = sum(failed in text for text in told) / len(told) if told else 0.5
    begun, ended = ("".join(said).count(tag) for tag in (opens, closes))
    form = min((begun - 1) / len(said), 1.0) if begun == ended > 0 else 1.0
    return rollout.scored(replace(score, parts={**score.parts, "faults": tools + form}))


def _spoken(text: Segment, role: int, world: World) -> list[str]:
    """What was said in one role, turn by turn."""
    own = np.flatnonzero(text.role == role)
    turns = np.split(own, np.flatnonzero(np.diff(own) > 1) + 1) if len(own) else []
    return [world.text.decode(text.tokens[at].tolist()) for at in turns]


def told(rollout: Rollout) -> str:
    """What an attempt answered: all of what the verifier would read, without the blanks around it."""
    return rollout.final.strip()


@trait("not_whether_right")
async def agreed(group: Group, world: World, *, answer: Callable[[Rollout], str] = told) -> Group:
    """1 for the answer that most of the group gave, else 0: no verifier is asked (TTRL, arXiv:2504.16084).

    Of answers that as many gave it is the first. What was cut has not answered: it has no vote, and is not right. An
    attempt whose environment failed has no score.
    """
    said = {r.attempt: answer(r) for r in group.rollouts if r.stop in (Stop.DONE, Stop.TURNS)}
    most = {name for name, _ in Counter(said.values()).most_common(1)}
    return group.of(
        r.scored(None if r.stop is Stop.ERROR else Score(float(said.get(r.attempt) in most))) for r in group.rollouts
    )
