"""PPO: several epochs on the last rollout, with a loss that gains nothing where the policy has moved too far.

    A_t = δ_t + γ λ A_{t+1},  δ_t = r_t + γ V(s_{t+1}) − V(s_t);  at an episode's end A = δ, and terminal V = 0
    L_π = −mean min(ρ Â, clip(ρ, 1 ± ε) Â),  ρ = π(a|s) / π_old(a|s),  Â: A over a batch less its mean, over its sd
    L_V = mean (V(s) − (A + V_old(s)))²

    Schulman et al. 2017, arXiv:1707.06347; GAE: arXiv:1506.02438. As in Stable-Baselines3, ten epochs of 2,048 samples;
    without its gradient clipping and initialisation. The policy is a tanh-Gaussian whose sd depends on the state
    (there: a clipped Gaussian with one sd). The tanh cancels in ρ.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import alike, improve, tempo
from isocost.control.replay import Replay, gathered
from isocost.control.seams import Agent, OnPolicy
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("PPO", "1707.06347", 2017, None, "A clipped ratio makes several epochs on one rollout safe.")
EDGE = 1 - 1e-6     # largest squashed action: float32 has no finite atanh beyond
TINY = 1e-8         # keeps the division by a deviation finite


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """An actor of mean and log sd, and V."""
    size = agent.width, agent.depth
    return {"actor": Mlp(space.observation, 2 * space.actions, *size), "critic": Mlp(space.observation, 1, *size)}


def log_prob(params: Params, observation: Tensor, action: Tensor) -> Tensor:
    """log π(a|s) but for terms without weights, which cancel in ρ: (S, B)."""
    mean, spread = params("actor", observation)[:, 0].chunk(2, -1)
    spread = spread.clamp(improve.LOWEST, improve.HIGHEST)
    z = (alike.atanh(action.clamp(-EDGE, EDGE)) - mean) / spread.exp()
    return (-0.5 * z * z - spread).sum(-1)


def prepare(replay: Replay, params: Params, *, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """log π_old, A, and A + V_old of each sample of the rollout: (S, N, 3)."""
    s, action, reward, s2, end, cut = replay.split(replay.at(replay.newest()))
    value, after = (params("critic", x)[:, 0, :, 0] for x in (s, s2))
    advantage = reward + gamma * (1 - end) * after - value
    goes_on = gamma * lam * (1 - end) * (1 - cut)
    steps, weights = (x.unflatten(1, (-1, replay.stride)).unbind(1) for x in (advantage, goes_on))
    for now, weight, later in zip(steps[-2::-1], weights[-2::-1], steps[:0:-1], strict=True):
        now += weight * later
    return torch.stack((log_prob(params, s, action), advantage, advantage + value), -1)


def sample(replay: Replay, count: int, luck: Luck) -> Transitions:
    """The next part of the rollout, in an order that is drawn anew for each epoch."""
    rollout = replay.newest()
    many = rollout.shape[1]
    parts = max(many // count, 1)
    epoch = Luck(luck.sources, [k // parts for k in luck.counts], luck.scope)
    order = epoch.uniform("epoch", many).argsort(dim=-1, stable=True)
    part = torch.tensor([k % parts for k in luck.counts])[:, None] * count + torch.arange(count)
    at = rollout.gather(1, order.gather(1, part % many))
    return gathered(replay, at, gamma=1.0)._replace(others=replay.named(at))


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """A + V_old: (S, B)."""
    return batch.others["return"]


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck, *, clip: float = 0.2) -> dict[str, Tensor]:
    """The clipped gain of the actor, and the squared error of V."""
    centred = batch.others["advantage"] - batch.others["advantage"].mean(-1, keepdim=True)
    scaled = centred / ((centred**2).mean(-1, keepdim=True).sqrt() + TINY)
    ratio = (log_prob(params, batch.observation, batch.action) - batch.others["log_prob"]).exp()
    gain = torch.minimum(ratio * scaled, ratio.clamp(1 - clip, 1 + clip) * scaled)
    error = (params("critic", batch.observation)[:, 0, :, 0] - target) ** 2
    return {"actor": -gain.mean(-1), "critic": error.mean(-1)}


def agent(**changes: Any) -> Agent:
    return OnPolicy(
        name="ppo", acts="continuous", networks=networks, prepare=partial(prepare, gamma=0.99, lam=0.95), sample=sample,
        target=target, losses=partial(losses, clip=0.2), explore=improve.by_policy,
        tempo=partial(tempo.steady, warmup=0), batch=64, members=1, kept=("log_prob", "advantage", "return"),
    ).but(**changes)
