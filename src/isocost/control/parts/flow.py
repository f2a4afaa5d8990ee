"""Flows: a network of velocities carries noise at time 0 to an action, or to anything else, at time 1.

    x ← x + v(s, x, i/N) / N,  i = 0 .. N − 1        trained by  |v(s, (1 − t) x₀ + t x₁, t) − (x₁ − x₀)|²

    Lipman et al. 2023, arXiv:2210.02747
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocost.control.luck import Draws, Luck
from isocost.control.networks import Mlp, Params
from isocost.control.seams import Agent


def velocity(condition: int, size: int, agent: Agent) -> Mlp:
    """A network of velocities: of the condition, the point (of `size` numbers) and the time."""
    return Mlp(condition + size + 1, size, agent.width, agent.depth)


def noise(luck: Luck | None, name: str, runs: int, *shape: int) -> Tensor:
    """Normal numbers, (S, *shape); without luck, the same ones for every row."""
    if luck is not None:
        return luck.normal(name, *shape)
    return Luck([Draws(0)] * runs, [0] * runs, "act").normal(name, *shape[1:]).unsqueeze(1).expand(runs, *shape)


def carried(params: Params, name: str, condition: Tensor, start: Tensor, steps: int) -> Tensor:
    """Where noise arrives by `steps` steps of Euler: (S, B, C), (S, B, size) -> (S, B, size)."""
    x = start
    for i in range(steps):
        x = x + params(name, condition, x, torch.full_like(start[..., :1], i / steps))[:, 0] / steps
    return x


def cloned(params: Params, name: str, condition: Tensor, end: Tensor, luck: Luck) -> Tensor:
    """The loss of a flow that ends as the data, (S, B, size): (S,), the mean over rows and numbers."""
    start, t = luck.normal(f"{name} start", *end.shape[1:]), luck.uniform(f"{name} time", end.shape[1], 1)
    found = params(name, condition, (1 - t) * start + t * end, t)[:, 0]
    return ((found - (end - start)) ** 2).mean(-1).mean(-1)


def by_flow(params: Params, observation: Tensor, luck: Luck | None, *, steps: int = 10) -> Tensor:
    """Acts by the flow "actor"."""
    size = params.networks["actor"].outputs
    start = noise(luck, "flow", len(observation), observation.shape[1], size)
    return carried(params, "actor", observation, start, steps).clamp(-1, 1)
