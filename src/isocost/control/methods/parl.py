"""PA-RL: actions of any policy are improved against the critic, and the policy is taught them by its own loss.

    m actions of π, the k of highest Q̂ = mean_j Q_j, each moved by T steps a ← clip(a + η ∇_a Q̂(s, a), ±1)
    π_opt: one of the k, in proportion to exp Q̂;  where one acts, and in y, the best        L_π = L_policy(π_opt(s))
    y = r + γ min_j Q'_j(s', a'),  L_Q = Σ_j mean (Q_j(s, a) − y)²
    on the set alone also  α mean (log Σ_i exp max(Q_j(s, a_i), R) − Q_j(s, a)),  a_i the k, R the set's return

    Mark et al. 2024, arXiv:2412.06685. Actions are the last iterates; public code can return the best seen. The first
    `cloning` updates on the set teach the set's actions. Policies: a flow in place of the paper's diffusion, a Gaussian,
    and bins one number after another, for its token models. Critics have one output, and two are kept (128 bins and 2 of
    10 there); after the set the penalty of Cal-QL is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import calql
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import flow, tempo
from isocost.control.parts.mix import beside
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.found import Card

CARD = Card("PA-RL", "2412.06685", 2024, "calql", "Improved actions, taught to it, fine-tune a policy of any class.")
EULER, BINS, NARROWEST, WIDEST = 5, 32, -4.0, 0.0       # steps of a flow; bins of a number; of a Gaussian's log sd


@dataclass(frozen=True)
class FlowPolicy(Mlp):
    """A policy by a flow. Each class has `act`, actions (S, B, A) of normal noise, and `taught`, its loss (S,)."""

    def act(self, params: Params, seen: Tensor, noise: Tensor) -> Tensor:
        return flow.carried(params, "actor", seen, noise, EULER).clamp(-1, 1)

    def taught(self, params: Params, seen: Tensor, action: Tensor, luck: Luck) -> Tensor:
        return flow.cloned(params, "actor", seen, action, luck)


@dataclass(frozen=True)
class GaussianPolicy(Mlp):
    """Mean tanh μ and a deviation for each number, clipped; its loss is the negative log-likelihood."""

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
class BinnedPolicy(Mlp):
    """Each number is one of `outputs` bins of [-1, 1], given those before it; its loss is the cross-entropy."""

    numbers: int = 1

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
            action = torch.cat((action[..., :k], ((2 * at + 1) / self.outputs - 1)[..., None], action[..., k + 1 :]), -1)
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
        "flow": FlowPolicy(seen + size + 1, size, *shape), "gaussian": GaussianPolicy(seen, 2 * size, *shape),
        "binned": BinnedPolicy(seen + 2 * size, BINS, *shape, numbers=size)}
    if policy not in classes:
        raise UserError(f"policy is {policy!r}: expected {', '.join(classes)}")
    critic = Mlp(seen + size, 1, *shape, members=agent.members, norm=True, slow=True)
    return {"actor": classes[policy], "critic": critic}


def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, old: float = 0.5) -> Transitions:
    """Of the set with its "return", before the first sample; then a share `old` of it beside the run's own."""
    return (calql.sample(replay, count, luck, gamma=gamma) if replay.fixed
            else beside(replay, count, luck, gamma=gamma, old=old))


def worth(params: Params, seen: Tensor, action: Tensor) -> Tensor:
    """Q̂, the mean of the critics: (S, B)."""
    return params("critic", seen, action)[..., 0].mean(1)


def improved(
    params: Params, seen: Tensor, noise: Tensor, *, drawn: int, kept: int, steps: int, rate: float
) -> tuple[Tensor, Tensor]:
    """The `kept` best of `drawn` actions, moved uphill: (S, B, kept, A), and their Q̂, (S, B, kept). `noise` is
    (S, B drawn, A). No gradient."""
    policy: Any = params.networks["actor"]
    with torch.no_grad():
        many = seen.repeat_interleave(drawn, 1)
        action = policy.act(params, many, noise)
        best = worth(params, many, action).unflatten(1, (-1, drawn)).topk(kept, -1).indices[..., None]
        action = action.unflatten(1, (-1, drawn)).gather(2, best.expand(-1, -1, -1, action.shape[-1])).flatten(1, 2)
        here = seen.repeat_interleave(kept, 1)
    for _ in range(steps):
        with torch.enable_grad():
            at = action.detach().requires_grad_()
            slope, = torch.autograd.grad(worth(params.fixed, here, at).sum(), at)
        action = (action + rate * slope).clamp(-1, 1)
    with torch.no_grad():
        return action.unflatten(1, (-1, kept)), worth(params, here, action).unflatten(1, (-1, kept))


def best_of(action: Tensor, value: Tensor) -> Tensor:
    """(S, B, k, A), (S, B, k) -> (S, B, A)."""
    return action.gather(2, value.argmax(-1)[..., None, None].expand(-1, -1, 1, action.shape[-1]))[:, :, 0]


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, drawn: int = 32, kept: int = 10, steps: int = 10,
    rate: float = 3e-4
) -> Tensor:
    """r + γ min_j Q'_j(s', a'), a' the best: (S, B)."""
    noise = luck.normal("next", batch.reward.shape[1] * drawn, batch.action.shape[-1])
    found = improved(params, batch.following, noise, drawn=drawn, kept=kept, steps=steps, rate=rate)
    return batch.reward + batch.discount * slow("critic", batch.following, best_of(*found))[..., 0].amin(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, drawn: int = 32, kept: int = 10,
    steps: int = 10, rate: float = 3e-4, alpha: float = 0.005, cloning: int = 1000
) -> dict[str, Tensor]:
    """Squared error of each critic, with the penalty on the set; the policy's own loss on π_opt."""
    seen = batch.observation
    noise = luck.normal("here", seen.shape[1] * drawn, batch.action.shape[-1])
    action, value = improved(params, seen, noise, drawn=drawn, kept=kept, steps=steps, rate=rate)
    own = params("critic", seen, batch.action)[..., 0]
    critic = ((own - target[:, None]) ** 2).mean(-1).sum(1)
    mass = value.softmax(-1).cumsum(-1)
    at = (luck.uniform("which", seen.shape[1])[..., None] > mass).sum(-1).clamp(max=kept - 1)
    aim = action.gather(2, at[..., None, None].expand(-1, -1, 1, action.shape[-1]))[:, :, 0]
    if "return" in batch.others:
        others = params("critic", seen.repeat_interleave(kept, 1), action.flatten(1, 2))[..., 0]
        lifted = others.unflatten(-1, (-1, kept)).maximum(batch.others["return"][:, None, :, None])
        critic = critic + alpha * (lifted.logsumexp(-1) - math.log(kept) - own).mean(-1).sum(1)
        early = torch.tensor(luck.counts)[:, None, None] < cloning
        aim = torch.where(early, batch.action, aim)
    policy: Any = params.networks["actor"]
    return {"critic": critic, "actor": policy.taught(params, seen, aim, luck)}


def explore(
    params: Params, observation: Tensor, luck: Luck | None, *, drawn: int = 32, kept: int = 10, steps: int = 10,
    rate: float = 3e-4
) -> Tensor:
    """The best of the improved actions."""
    size = observation.shape[1] * drawn, params.networks["critic"].inputs - observation.shape[-1]
    noise = flow.noise(luck, "explore", len(observation), observation.shape[1], drawn * size[1])
    return best_of(*improved(params, observation, noise.reshape(len(observation), *size), drawn=drawn, kept=kept,
                             steps=steps, rate=rate))


def agent(**changes: Any) -> Agent:
    return Agent(
        name="parl", acts="continuous", networks=partial(networks, policy="flow"),
        sample=partial(sample, gamma=0.99, old=0.5), target=partial(target, drawn=32, kept=10, steps=10, rate=3e-4),
        losses=partial(losses, drawn=32, kept=10, steps=10, rate=3e-4, alpha=0.005, cloning=1000),
        explore=partial(explore, drawn=32, kept=10, steps=10, rate=3e-4),
        tempo=partial(tempo.from_set, warmup=200, keeps=True),
    ).but(**changes)
