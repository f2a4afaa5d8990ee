"""What each attempt of a finished group was worth. A verifier that failed gives no score, never a zero."""

from __future__ import annotations

from dataclasses import replace

from isocost.types import Group, Rollout, Stop
from isocost.world import World


async def verified(group: Group, world: World) -> Group:
    """What the verifier says. An attempt whose environment failed is not shown to it, and has no score."""
    ended = [r for r in group.rollouts if r.stop is not Stop.ERROR]
    scores = iter(await world.grade(ended))
    return group.of([r if r.stop is Stop.ERROR else r.scored(next(scores)) for r in group.rollouts])


async def verified_unless_cut(
    group: Group, world: World, *, penalty: float = 0.5, limit: int = 0, cache: int = 0
) -> Group:
    """What the verifier says, less a penalty for running out of room (DAPO, arXiv:2503.14476).

    The penalty is 0 up to `limit - cache` sampled tokens, grows linearly to `penalty` at `limit`, and is `penalty`
    for whatever was cut. With `cache` 0 only what was cut is charged. Parts: `right` (unshaped) and `overlong`.
    """
    group = await verified(group, world)
    return group.of(_charged(r, penalty * _overlong(r, limit, cache)) for r in group.rollouts)


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
