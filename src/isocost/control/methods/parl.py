"""PA-RL: a policy's actions are improved against the critic, and the policy is trained on them by its own loss.

    32 actions of π, the 10 of highest Q̂ = mean_j Q_j, each moved by 10 steps a ← clip(a + 3e-4 ∇_a Q̂(s, a), ±1)
    π_opt: one of the 10, in proportion to exp Q̂;  to act, and as a' in y, the best        L_π = L_policy(π_opt(s))
    y = r + γ min_j Q'_j(s', a'),  L_Q = Σ_j mean (Q_j(s, a) − y)²
    on the set alone also  α mean (log Σ_i exp max(Q_j(s, a_i), R) − Q_j(s, a)),  a_i the 10, R the set's return

    Mark et al. 2024, arXiv:2412.06685. Actions are the last iterates; public code can return the best seen. The first
    `cloning` updates on the set train on the set's actions. Policies: a flow (the paper: diffusion), a Gaussian, and
    bins for each number in turn (the paper: token models). There are two critics of one output (the paper: 2 drawn of
    10, of 128 bins). The penalty applies on the set alone. `--set losses.better.drawn=16` sets the 32 of one seam.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import wsrl
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import flow, tempo
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.found import Card

CARD = Card("PA-RL", "2412.06685", 2024, "calql", "Improved actions, taught to it, fine-tune a policy of any class.")
Improved = Callable[..., tuple[Tensor, Tensor]]
EULER, BINS, NARROWEST, WIDEST = 5, 32, -4.0, 2.0       # steps of a flow; bins of a number; of a Gaussian's log sd


@dataclass(frozen=True)
class TaughtPolicy(Mlp, ABC):
    """A policy whose actions are `numbers` numbers in [-1, 1]."""

    numbers: int = 1

    @abstractmethod
    def act(self, params: Params, seen: Tensor, noise: Tensor) -> Tensor:
        """Actions for observations, (S, B, O), from standard normal noise, (S, B, A): (S, B, A)."""

    @abstractmethod
    def taught(self, params: Params, seen: Tensor, action: Tensor, luck: Luck) -> Tensor:
        """The loss of imitating these actions, (S, B, A), as this kind of policy is trained: (S,)."""


def policy_of(params: Params) -> TaughtPolicy:
    """The actor."""
    actor = params.networks["actor"]
    assert isinstance(actor, TaughtPolicy)
    return actor


@dataclass(frozen=True)
class FlowPolicy(TaughtPolicy):
    """A flow from noise to actions; its loss is that of flow matching."""

    def act(self, params: Params, seen: Tensor, noise: Tensor) -> Tensor:
        return flow.carried(params, "actor", seen, noise, EULER).clamp(-1, 1)

    def taught(self, params: Params, seen: Tensor, action: Tensor, luck: Luck) -> Tensor:
        return flow.cloned(params, "actor", seen, action, luck)


@dataclass(frozen=True)
class GaussianPolicy(TaughtPolicy):
    """Mean tanh μ, and log sd between `NARROWEST` and `WIDEST`; the loss is the negative log-likelihood."""

    def _law(self, params: Params, seen: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = params("actor", seen)[:, 0].chunk(2, -1)
        return torch.tanh(mean), spread.clamp(NARROWEST, WIDEST)

    def act(self, params: Params, seen: Tensor, noise: Tensor) -> Tensor:
        mean, spread = self._law(params, seen)
        return (mean + spread.exp() * noise).clamp(-1, 1)

    def taught(self, params: Params, seen: Tensor, action: Tensor, luck: Luck) -> Tensor:
        mean, spread = self._law(params, seen)
        return (((action - mean) / spread.exp()) ** 2 / 2 + spread).sum(-1).mean(-1)


@dataclass(frozen=True)
class BinnedPolicy(TaughtPolicy):
    """Each number is one of `outputs` bins of [-1, 1], given those before it; its loss is the cross-entropy."""

    def _logits(self, params: Params, seen: Tensor, action: Tensor, k: int) -> Tensor:
        known = torch.cat((action[..., :k], torch.zeros_like(action[..., k:])), -1)
        place = torch.zeros_like(action)
        place[..., k] = 1
        return params("actor", seen, known, place)[:, 0]

    def act(self, params: Params, seen: Tensor, noise: Tensor) -> Tensor:
        action = torch.zeros_like(noise)
        for k in range(self.numbers):
            mass = self._logits(params, seen, action, k).softmax(-1).cumsum(-1)
            at = (torch.special.ndtr(noise[..., k : k + 1]) > mass).sum(-1).clamp(max=self.outputs - 1)
            action = action.index_copy(-1, torch.tensor([k]), ((2 * at + 1) / self.outputs - 1)[..., None])
        return action

    def taught(self, params: Params, seen: Tensor, action: Tensor, luck: Luck) -> Tensor:
        at = ((action + 1) / 2 * self.outputs).long().clamp(0, self.outputs - 1)
        each = [-self._logits(params, seen, action, k).log_softmax(-1).gather(-1, at[..., k : k + 1])[..., 0]
                for k in range(self.numbers)]
        return torch.stack(each).sum(0).mean(-1)


def networks(space: Space, agent: Agent, *, policy: str = "flow") -> Mapping[str, Network]:
    """K critics with a slow copy, and a policy: "flow", "gaussian" or "binned"."""
    seen, size, shape = space.observation, space.actions, (agent.width, agent.depth)
    classes: dict[str, Network] = {
        "flow": FlowPolicy(seen + size + 1, size, *shape, numbers=size),
        "gaussian": GaussianPolicy(seen, 2 * size, *shape, numbers=size),
        "binned": BinnedPolicy(seen + 2 * size, BINS, *shape, numbers=size)}
    if policy not in classes:
        raise UserError(f"policy is {policy!r}: expected {', '.join(classes)}")
    return {"actor": classes[policy], "critic": wsrl.networks(space, agent)["critic"]}


def worth(params: Params, seen: Tensor, action: Tensor) -> Tensor:
    """Q̂, the mean of the critics: (S, B)."""
    return params("critic", seen, action)[..., 0].mean(1)


def improved(
    params: Params, seen: Tensor, luck: Luck | None, name: str, *, drawn: int = 32, kept: int = 10, steps: int = 10,
    rate: float = 3e-4
) -> tuple[Tensor, Tensor]:
    """The `kept` best of `drawn` actions, moved uphill: (S, B, kept, A), and their Q̂, (S, B, kept). No gradient."""
    policy = policy_of(params)
    (runs, rows, _), size = seen.shape, policy.numbers
    with torch.no_grad():
        many = seen.repeat_interleave(drawn, 1)
        noise = flow.noise(luck, name, runs, rows, drawn * size)
        action = policy.act(params, many, noise.reshape(runs, rows * drawn, size))
        best = worth(params, many, action).unflatten(1, (rows, drawn)).topk(kept, -1).indices[..., None]
        action = action.unflatten(1, (rows, drawn)).gather(2, best.expand(-1, -1, -1, size)).flatten(1, 2)
        here = seen.repeat_interleave(kept, 1)
    for _ in range(steps):
        with torch.enable_grad():
            at = action.detach().requires_grad_()
            slope, = torch.autograd.grad(worth(params.fixed, here, at).sum(), at)
        action = (action + rate * slope).clamp(-1, 1)
    with torch.no_grad():
        return action.unflatten(1, (rows, kept)), worth(params, here, action).unflatten(1, (rows, kept))


def picked(action: Tensor, at: Tensor) -> Tensor:
    """(S, B, k, A), (S, B) -> (S, B, A)."""
    return action.gather(2, at[..., None, None].expand(-1, -1, 1, action.shape[-1]))[:, :, 0]


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, better: Improved = improved) -> Tensor:
    """r + γ min_j Q'_j(s', a'), a' the best: (S, B)."""
    action, value = better(params, batch.following, luck, "next")
    after = slow("critic", batch.following, picked(action, value.argmax(-1)))
    return batch.reward + batch.discount * after[..., 0].amin(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, better: Improved = improved,
    alpha: float = 0.005, cloning: int = 1000
) -> dict[str, Tensor]:
    """Squared error of each critic, with the penalty on the set; the policy's own loss on π_opt."""
    seen = batch.observation
    action, value = better(params, seen, luck, "here")
    own, kept = params("critic", seen, batch.action)[..., 0], value.shape[-1]
    critic = ((own - target[:, None]) ** 2).mean(-1).sum(1)
    u = luck.uniform("which", seen.shape[1])[..., None]
    aim = picked(action, (u > value.softmax(-1).cumsum(-1)).sum(-1).clamp(max=kept - 1))
    if "return" in batch.others:
        others = params("critic", seen.repeat_interleave(kept, 1), action.flatten(1, 2))[..., 0]
        lifted = others.unflatten(-1, (-1, kept)).maximum(batch.others["return"][:, None, :, None])
        critic = critic + alpha * (lifted.logsumexp(-1) - math.log(kept) - own).mean(-1).sum(1)
        aim = torch.where(torch.tensor(luck.counts)[:, None, None] < cloning, batch.action, aim)
    return {"critic": critic, "actor": policy_of(params).taught(params, seen, aim, luck)}


def explore(params: Params, observation: Tensor, luck: Luck | None, *, better: Improved = improved) -> Tensor:
    """The best of the improved actions."""
    action, value = better(params, observation, luck, "explore")
    return picked(action, value.argmax(-1))


def agent(**changes: Any) -> Agent:
    return Agent(
        name="parl", acts="continuous", networks=partial(networks, policy="flow"),
        sample=partial(wsrl.sample, gamma=0.99, old=0.5), target=target,
        losses=partial(losses, alpha=0.005, cloning=1000), explore=explore,
        tempo=partial(tempo.from_set, warmup=200, keeps=True),
    ).but(**changes)
