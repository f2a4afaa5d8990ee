"""floq: the critic is a flow from noise to the value; each of its K steps is trained, so steps add capacity.

    Q(s, a, z) = z carried by K Euler steps of v(s, a, z_t, t)        y = r + γ mean_j Q'(s', a'_j, z'_j),  j = 1 .. m
    L_v = mean Σ_j |v(s, a, (1 − t) z_j + t y, t) − (y − z_j)|²,  z ~ U(κ low, κ high)
    L_Q = mean |Q_k(s, a) − mean_j Q(s, a, z_j)|²,  and FQL's flow and actor on these distilled critics Q_k

    Agrawalla et al. 2025, arXiv:2509.06863. v sees z as a Gaussian over 50 bins, 16 bins wide, and t as sin and cos of
    π k t, k = 1 .. 32 (the paper's Fourier features; the public code feeds cos t alone). `low` and `high` must hold
    the discounted returns of the task. Its networks are four layers of 512 with LayerNorm.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import fql
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts.heads import FlowValue
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("floq", "2509.06863", 2025, "fql", "A critic that integrates a velocity gains by more steps.")


def networks(
    space: Space, agent: Agent, *, low: float = -101.0, high: float = 1.0, bins: int = 50, frequencies: int = 32
) -> Mapping[str, Network]:
    """FQL's, with critics that are not averaged, and K velocities of a value with a slow copy."""
    seen = space.observation + space.actions
    made = fql.networks(space, agent)
    return {
        **made, "critic": Mlp(seen, 1, agent.width, agent.depth, agent.members),
        "velocity": FlowValue(seen + bins + 2 * frequencies, 1, agent.width, agent.depth, agent.members, slow=True,
                              low=low, high=high, bins=bins, frequencies=frequencies),
    }


def noise(params: Params, luck: Luck, name: str, count: int, kappa: float) -> Tensor:
    """Where a value starts: (S, count, 1), uniform in κ (low, high)."""
    net = params.networks["velocity"]
    assert isinstance(net, FlowValue)
    return kappa * (net.low + (net.high - net.low) * luck.uniform(name, count, 1))


def value(params: Params, seen: Tensor, start: Tensor, steps: int) -> Tensor:
    """The value of each member: (S, B, O + A), (S, B, 1) -> (S, K, B)."""
    net = params.networks["velocity"]
    assert isinstance(net, FlowValue)
    z = start[:, None].expand(-1, net.members, -1, -1)
    given = seen[:, None].expand(-1, net.members, -1, -1)
    for i in range(steps):
        z = z + params("velocity", given, net.encoded(z, torch.full_like(z, i / steps))) / steps
    return z[..., 0]


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, steps: int = 8, noises: int = 8,
    kappa: float = 0.1
) -> Tensor:
    """r + γ times the mean of the slow flow's members at `noises` actions and noises: (S, B)."""
    after = batch.following.repeat_interleave(noises, 1)
    count = after.shape[1]
    action = fql.one_step(params, after, luck.normal("next", count, batch.action.shape[-1])).clamp(-1, 1)
    start = noise(params, luck, "next start", count, kappa)
    found = value(slow, torch.cat((after, action), -1), start, steps).mean(1).unflatten(-1, (-1, noises)).mean(-1)
    return batch.reward + batch.discount * found


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, alpha: float = 10.0, steps: int = 8,
    noises: int = 8, kappa: float = 0.1
) -> dict[str, Tensor]:
    """The velocity's, the distilled critics', and FQL's flow and actor (ten steps)."""
    net = params.networks["velocity"]
    assert isinstance(net, FlowValue)
    seen = torch.cat((batch.observation, batch.action), -1)
    many, y = seen.repeat_interleave(noises, 1), target.repeat_interleave(noises, 1)[..., None]
    start = noise(params, luck, "start", many.shape[1], kappa)
    t = luck.uniform("time", many.shape[1], 1)
    moved = params("velocity", many, net.encoded((1 - t) * start + t * y, t))[..., 0]
    error = ((moved - (y - start)[:, None, :, 0]) ** 2).mean(1).mean(-1) * noises
    with torch.no_grad():
        taught = value(params, many, start, steps).mean(1).unflatten(-1, (-1, noises)).mean(-1)
    critic = (params("critic", seen)[..., 0] - taught[:, None]) ** 2
    return {"velocity": error, "critic": critic.mean(-1).sum(1),
            **fql.improved(batch, params, luck, alpha=alpha, steps=10)}


def agent(**changes: Any) -> Agent:
    return fql.agent(
        name="floq",
        networks=partial(networks, low=-101.0, high=1.0, bins=50, frequencies=32),      # of rewards in [-1, 0]
        target=partial(target, steps=8, noises=8, kappa=0.1),       # set these in both
        losses=partial(losses, alpha=10.0, steps=8, noises=8, kappa=0.1),
    ).but(**changes)
