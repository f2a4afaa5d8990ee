"""SAW: one flat policy that is taught by a policy for near goals, where these are on the way to the far goal.

    V(s, g) as in HIQL        L_w = mean exp(β (V(s', w) − V(s, w))) |a − μ_w(s, w)|² / 2,  w a state k steps ahead
    L_π = mean exp(β (V(s', g) − V(s, g))) |a − μ(s, g)|² / 2 + exp(β (V(w, g) − V(s, g))) |μ_w(s, w) − μ(s, g)|² / 2

    Zhou & Kao 2025, arXiv:2505.14975. Weights at most 100; Gaussians with a deviation of 1, so that KL is half of the
    squared distance of the means; no gradient into μ_w from the second term. The three β are one setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import backup, improve, tempo
from isocost.control.parts.goals import GoalWalk, aimed, size_of
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("SAW", "2505.14975", 2025, None, "A flat policy taught on near goals reaches far ones without a hierarchy.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """V of (s, g), two networks with a slow copy; the policy, and the one for near goals."""
    size_of(space)
    size = agent.width, agent.depth
    return {"critic": Mlp(space.observation, 1, *size, members=agent.members, slow=True),
            "near": Mlp(space.observation, space.actions, *size),
            "actor": Mlp(space.observation, space.actions, *size)}


def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, steps: int = 8, current: float = 0.2,
    future: float = 0.5
) -> Transitions:
    """One step towards a goal; in "others" the same towards a goal ahead ("far ..") and its subgoal ("near ..")."""
    walk, size = GoalWalk(replay, count, luck), replay.space.goal
    now, one = walk.state(0), walk.state(1)
    goal, far = walk.goal("value", current=current, future=future)
    aim, away = walk.goal("actor", current=0.0, future=1.0)
    subgoal, goes = walk.state(away.clamp(max=steps)), (far > 0).float()
    point = subgoal[..., :size]
    return Transitions(
        aimed(now, goal), walk.action, -goes, aimed(one, goal), gamma * goes,
        {"far": aimed(now, aim), "far following": aimed(one, aim), "far subgoal": aimed(subgoal, aim),
         "near": aimed(now, point), "near following": aimed(one, point)})


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """Targets of each member and the advantage: (S, B, K + 1)."""
    return backup.implicit(slow, "critic", batch.observation, batch.reward, batch.following, batch.discount)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, tau: float = 0.7, beta: float = 3.0
) -> dict[str, Tensor]:
    """The expectile of V; cloning towards near goals; cloning and teaching towards far ones."""
    more = batch.others
    near, flat = (torch.tanh(params(name, more[seen])[:, 0]) for name, seen in (("near", "near"), ("actor", "far")))

    def weight(after: str, before: str) -> Tensor:
        return backup.weight(backup.gain(params, "critic", more[after], more[before]), beta)

    return {
        "critic": backup.implicit_loss(params, "critic", batch.observation, target, tau),
        "near": backup.imitated(weight("near following", "near"), near, batch.action),
        "actor": backup.imitated(weight("far following", "far"), flat, batch.action)
        + backup.imitated(weight("far subgoal", "far"), flat, near.detach()),
    }


def agent(**changes: Any) -> Agent:
    return Agent(
        name="saw", acts="continuous", networks=networks,
        sample=partial(sample, gamma=0.99, steps=8, current=0.2, future=0.5), target=target,
        losses=partial(losses, tau=0.7, beta=3.0), explore=partial(improve.with_noise, noise=0.0),
        tempo=partial(tempo.offline, tau=0.005),
    ).but(**changes)
