"""OTA: a hierarchy whose high value counts options of n steps, so that its advantage keeps its sign at a distance.

    high: V(s, g) ← −1 + γ V'(s_{t+min(n, d)}, g),  0 where the option starts at the goal        low: the same, n = 1
    L_h = mean exp(β (V(s_{t+k}, g) − V(s, g))) |s_{t+k} − h(s, g)|² / 2
    L_l = mean exp(β (V_l(s_{t+1}, w) − V_l(s, w))) |a − π(s, w)|² / 2,  w = s_{t+k},  weights at most 100

    Ahn et al. 2025, arXiv:2505.12737, on HIQL, arXiv:2307.11949 (the same with n = 1). Each V is two networks, an
    expectile as in HIQL; γ counts options. Subgoals are points; HIQL's are a representation that is learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import backup, tempo
from isocost.control.parts.goals import GoalWalk, aimed, size_of
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("OTA", "2505.12737", 2025, None, "Values over options keep the sign of the advantage at a distance.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """Two values of (s, g) with slow copies, a policy of subgoals, and one of actions towards a subgoal."""
    goal, size = size_of(space), (agent.width, agent.depth)
    value = Mlp(space.observation, 1, *size, members=agent.members, slow=True)
    return {"critic": value, "low": value, "high": Mlp(space.observation, goal, *size),
            "actor": Mlp(space.observation, space.actions, *size)}


def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, option: int = 4, steps: int = 8,
    current: float = 0.2, future: float = 0.5
) -> Transitions:
    """An option towards a goal; in "others" one step towards another goal ("low .."), and what both policies clone."""
    walk, size = GoalWalk(replay, count, luck), replay.space.goal
    now, one = walk.state(0), walk.state(1)
    goal, far = walk.goal("value", current=current, future=future)
    near, away = walk.goal("low", current=current, future=future)
    aim, aimed_away = walk.goal("actor", current=0.0, future=1.0)
    subgoal = walk.state(aimed_away.clamp(max=steps))
    point = walk.state(steps)[..., :size]
    goes, goes_low = (far > 0).float(), (away > 0).float()
    return Transitions(
        aimed(now, goal), walk.action, -goes, aimed(walk.state(far.clamp(max=option)), goal), gamma * goes,
        {"low": aimed(now, near), "low reward": -goes_low, "low following": aimed(one, near),
         "low discount": gamma * goes_low, "high": aimed(now, aim), "high following": aimed(subgoal, aim),
         "subgoal": subgoal[..., :size], "towards": aimed(now, point), "towards following": aimed(one, point)})


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """Targets and advantage of the high value, then of the low one: (S, B, 2 (K + 1))."""
    s, _, r, s2, discount, more = batch
    low = more["low"], more["low reward"], more["low following"], more["low discount"]
    return torch.cat((backup.implicit(slow, "critic", s, r, s2, discount), backup.implicit(slow, "low", *low)), -1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, tau: float = 0.7, beta: float = 3.0
) -> dict[str, Tensor]:
    """Expectiles of both values; cloning of subgoals and actions by the gain of their value."""
    more, (high, low) = batch.others, target.chunk(2, -1)
    point = params("high", more["high"])[:, 0]
    action = torch.tanh(params("actor", more["towards"])[:, 0])
    gained = backup.gain(params, "critic", more["high following"], more["high"])
    step = backup.gain(params, "low", more["towards following"], more["towards"])
    return {
        "critic": backup.implicit_loss(params, "critic", batch.observation, high, tau),
        "low": backup.implicit_loss(params, "low", more["low"], low, tau),
        "high": backup.imitated(backup.weight(gained, beta), point, more["subgoal"]),
        "actor": backup.imitated(backup.weight(step, beta), action, batch.action),
    }


def explore(params: Params, observation: Tensor, luck: Luck | None) -> Tensor:
    """The action towards the subgoal."""
    point = params("high", observation)[:, 0]
    return torch.tanh(params("actor", aimed(observation[..., : -point.shape[-1]], point))[:, 0])


def agent(**changes: Any) -> Agent:
    return Agent(
        name="ota", acts="continuous", networks=networks,
        sample=partial(sample, gamma=0.99, option=4, steps=8, current=0.2, future=0.5), target=target,
        losses=partial(losses, tau=0.7, beta=3.0), explore=explore, tempo=partial(tempo.offline, tau=0.005),
    ).but(**changes)
