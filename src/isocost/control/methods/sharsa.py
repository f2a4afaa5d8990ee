"""SHARSA: values and policy look n steps ahead: SARSA over subgoals, and subgoals that are drawn and chosen by it.

    w = the point of s_{t+k},  k = min(n, steps to the end, steps to g)
    Q_j(s, g, w) ← γ^k 1(reached g) + γ^k 1(not reached) V(s_{t+k}, g)        V(s, g) ← min_j Q'_j(s, g, w)
    act: 32 subgoals of a flow of (s, g), the one of the highest min_j Q_j, an action of a flow of (s, w)

    Park et al. 2025, arXiv:2506.04168. Cross-entropy of logits, no maximum in the target. "Reached" is tested on the
    goal (the public code tests k < n, which the end of a trajectory also meets); at an end without the goal the target
    goes on from the last state with γ^k. Goals ahead are uniform; the paper's of the policy are geometric. The plain
    form, without its second, low value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import alike, flow, tempo
from isocost.control.parts.goals import GoalWalk, aimed, size_of
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("SHARSA", "2506.04168", 2025, "flowbc", "Shorter horizons of values and policy let more data help.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """V of (s, g), K critics of (s, g, w) with a slow copy, a flow of subgoals and one of actions."""
    goal, size = size_of(space), (agent.width, agent.depth)
    return {
        "value": Mlp(space.observation, 1, *size),
        "critic": Mlp(space.observation + goal, 1, *size, members=agent.members, slow=True),
        "high": flow.velocity(space.observation, goal, agent),
        "actor": flow.velocity(space.observation, space.actions, agent),
    }


def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, steps: int = 8, current: float = 0.2,
    future: float = 0.5, aimed_future: float = 0.5
) -> Transitions:
    """The first k steps towards a goal; "high" and "subgoal" for the flow of subgoals, "low" for that of actions."""
    walk, size = GoalWalk(replay, count, luck), replay.space.goal
    goal, far = walk.goal("value", current=current, future=future)
    k = walk.left.clamp(max=steps).minimum(far)
    reached = (k == far).float()
    own, away = walk.goal("actor", current=0.0, future=aimed_future)
    now = walk.state(0)
    return Transitions(
        aimed(now, goal), walk.action, gamma**k * reached, aimed(walk.state(k), goal), gamma**k * (1 - reached),
        {"high": aimed(now, own), "subgoal": walk.state(away.clamp(max=steps))[..., :size],
         "low": aimed(now, walk.state(steps)[..., :size])})


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ^k V(s_{t+k}, g), and min_j Q'_j(s, g, w): (S, B, 2)."""
    subgoal = batch.following[..., : batch.others["subgoal"].shape[-1]]
    after = alike.sigmoid(params("value", batch.following)[:, 0, :, 0])
    seen = alike.sigmoid(slow("critic", batch.observation, subgoal)[..., 0]).amin(1)
    return torch.stack((batch.reward + batch.discount * after, seen), -1)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Cross-entropy of V and of each critic; both flows."""
    y, seen = target.unbind(-1)
    more = batch.others
    q = params("critic", batch.observation, batch.following[..., : more["subgoal"].shape[-1]])[..., 0]
    v = params("value", batch.observation)[:, 0, :, 0]
    return {
        "critic": alike.cross_entropy(q, y[:, None]).mean(-1).sum(1),
        "value": alike.cross_entropy(v, seen).mean(-1),
        "high": flow.cloned(params, "high", more["high"], more["subgoal"], luck),
        "actor": flow.cloned(params, "actor", more["low"], batch.action, luck),
    }


def explore(
    params: Params, observation: Tensor, luck: Luck | None, *, drawn: int = 32, steps: int = 10
) -> Tensor:
    """An action towards the best of `drawn` subgoals."""
    runs, rows, _ = observation.shape
    size = params.networks["high"].outputs
    many = observation.repeat_interleave(drawn, 1)
    start = flow.noise(luck, "subgoal", runs, rows, drawn * size).reshape(runs, rows * drawn, size)
    found = flow.carried(params, "high", many, start, steps)
    worth = params("critic", many, found)[..., 0].amin(1).unflatten(1, (rows, drawn))
    best = worth.argmax(-1)[..., None, None].expand(-1, -1, 1, size)
    subgoal = found.unflatten(1, (rows, drawn)).gather(2, best)[:, :, 0]
    return flow.by_flow(params, aimed(observation[..., :-size], subgoal), luck, steps=steps)


def agent(**changes: Any) -> Agent:
    return Agent(
        name="sharsa", acts="continuous", networks=networks,
        sample=partial(sample, gamma=0.99, steps=8, current=0.2, future=0.5, aimed_future=0.5),  # paper: 25 or 50 steps
        target=target, losses=losses, explore=partial(explore, drawn=32, steps=10),
        tempo=partial(tempo.offline, sampled=True),
    ).but(**changes)
