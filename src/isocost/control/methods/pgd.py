"""Policy-guided diffusion: a flow of trajectory pieces generates transitions, guided towards the policy's actions.

    x = the flow from noise to a piece τ = (s, a, r, end) × L, by N steps;  before each step i < N − 1, of its actions:
    a ← a + λ_i g / |g|,  g = ∇_a log N(a; μ(s), 1) = μ(s) − a,  λ_i = λ ((1 − i/N) + 0.3 sin(π (i + 1)/N))
    then one of the piece's L − 1 steps, for IQL

Jackson et al. 2024, arXiv:2404.06356. λ = 0 gives the set's own distribution. Left out: EDM's noise levels and second
order (here a flow, by Euler's steps), its U-Net (here dense layers), TD3 + BC, and synthetic sets that serve for 10,000
updates: each update makes its own batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import iql
from isocost.control.networks import Network, Params
from isocost.control.parts import flow, model, tempo
from isocost.control.parts.mix import last_rows
from isocost.control.replay import Replay, gathered
from isocost.control.seams import Agent, ModelBased
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.found import Card
from isocost.recipe import knobs
from isocost.traits import bounds

CARD = Card("PGD", "2404.06356", 2024, "iql", "Pieces guided to the policy are better training data than the set's.")


def networks(space: Space, agent: Agent, *, steps: int = 4) -> Mapping[str, Network]:
    """IQL's, and the flow of pieces of `steps` steps. Raises UserError if `sample` draws longer or shorter ones."""
    if steps != (drawn := knobs(agent.sample)["steps"]):
        raise UserError(f"networks.steps is {steps} and sample.steps is {drawn}: --set both to the same number")
    size = steps * (space.observation + space.actions + 2)
    return {**iql.networks(space, agent), "model": flow.velocity(0, size, agent)}


@bounds(steps="[2, inf)")
def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, steps: int = 4) -> Transitions:
    """Pieces of `steps` rows of one trajectory as "piece", (S, B, L, O + A + 2), with "mean" and "spread" of the set's
    numbers; and the first row of each as a transition. Where no trajectory is so long, its last row is repeated."""
    def numbers(rows: Tensor) -> Tensor:
        s, a, r, _, end, _ = replay.split(rows)
        return torch.cat((s, a, r[..., None], end[..., None]), -1)

    def made() -> tuple[Tensor, Tensor, Tensor]:
        own = numbers(replay.rows[list(replay.runs)[: 1 if replay.fixed else None], : replay.stored[0]])
        starts = (last_rows(replay) - torch.arange(own.shape[1]) >= steps - 1).nonzero()[:, 0]
        starts = starts if len(starts) else torch.arange(own.shape[1])
        return starts, own.mean(1)[:, None, None], own.std(1, correction=0).clamp(min=1e-3)[:, None, None]

    starts, mean, spread = replay.once(("pieces", steps), made)
    at = starts[(luck.uniform("replay", count) * len(starts)).long()]
    rows = (at[..., None] + torch.arange(steps)).minimum(last_rows(replay)[at][..., None])
    piece = numbers(replay.at(rows.flatten(1))).unflatten(1, (count, steps))
    shape = *at.shape, 1, piece.shape[-1]
    return gathered(replay, at, gamma=gamma)._replace(
        others={"piece": (piece - mean) / spread, "mean": mean.expand(shape), "spread": spread.expand(shape)})


def towards(action: Tensor, wanted: Tensor) -> Tensor:
    """g / |g|, its length over a whole piece: (S, B, L, A)."""
    pull = wanted - action
    return pull / (pull.flatten(2).norm(dim=-1) + 1e-8)[..., None, None]


@bounds(flow_steps="[1, inf)")
def imagined(
    batch: Transitions, params: Params, luck: Luck, *, gamma: float = 0.99, guidance: float = 0.3, flow_steps: int = 10
) -> Transitions:
    """A step of each guided piece; the batch unchanged while the flow alone is trained. `guidance` is λ."""
    if "critic" not in params.due:
        return batch
    piece, mean, spread = (batch.others[k] for k in ("piece", "mean", "spread"))
    (o, a), rows, length = (batch.observation.shape[-1], batch.action.shape[-1]), piece.shape[1], piece.shape[2]
    x, none = luck.normal("piece", *piece.shape[1:]), batch.observation[..., :0]
    for i in range(flow_steps):
        if guidance and i < flow_steps - 1:
            raw = x * spread + mean
            wanted = torch.tanh(params("actor", raw[..., :o].flatten(1, 2))[:, 0]).unflatten(1, (rows, length))
            size = guidance * ((1 - i / flow_steps) + 0.3 * math.sin(math.pi * (i + 1) / flow_steps))
            x = torch.cat((x[..., :o], x[..., o : o + a] + size * towards(raw[..., o : o + a], wanted),
                           x[..., o + a :]), -1)
        time = torch.full_like(batch.reward[..., None], i / flow_steps)
        x = x + params("model", none, x.flatten(2), time)[:, 0].unflatten(-1, x.shape[2:]) / flow_steps
    x = x * spread + mean
    at = (luck.uniform("step", rows) * (length - 1)).long()[..., None, None].expand(-1, -1, 1, x.shape[-1])
    now, after = x.gather(2, at)[:, :, 0], x.gather(2, at + 1)[:, :, 0]
    seen, action, reward, end = now.split((o, a, 1, 1), -1)
    return Transitions(seen, action.clamp(-1, 1), reward[..., 0], after[..., :o],
                       torch.where(end[..., 0] > 0.5, 0.0, gamma), batch.others)


def of_pieces(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """The flow's loss, (S,), on the replayed pieces."""
    return {"model": flow.cloned(params, "model", batch.observation[..., :0], batch.others["piece"].flatten(2), luck)}


def agent(**changes: Any) -> Agent:
    return ModelBased(
        name="pgd", acts="continuous", networks=partial(networks, steps=4), sample=partial(sample, gamma=0.99, steps=4),
        imagine=partial(imagined, gamma=0.99, guidance=0.3, flow_steps=10),
        target=partial(model.target, rest=iql.target),
        losses=partial(model.losses, rest=partial(iql.losses, tau=0.7, beta=3.0), own=of_pieces),
        explore=iql.agent().explore, tempo=partial(tempo.model_first, fitted=1000, tau=0.005),
    ).but(**changes)
