"""RAVL: on short rollouts of a learned model, the least of ten diverse critics bounds states without a target.

    y = r + γ (min_k Q'_k(s', a') − α log π(a'|s')),  min over all K = 10        L_π = mean (α log π − min_k Q_k)
    L_Q = Σ_k mean (Q_k(s, a) − y)² + η/(K − 1) mean Σ_{i≠j} cos(∇_a Q_i, ∇_a Q_j)

Sims et al. 2024, arXiv:2402.12527; diversity is EDAC's, arXiv:2110.01548. A rollout of h steps ends in
states that never get a target: no update corrects their values, even if the model is exact. Left out: a Gaussian model
and its choice of members, three hidden layers, a buffer of older rollouts (each update makes its own), a smaller rate
for α.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import improve, model, tempo
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent, ModelBased
from isocost.control.types import Space, Transitions
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("RAVL", "2402.12527", 2024, "sac", "The least of ten critics bounds values at the edge of reach.")


@bounds(models="[1, inf)")
def networks(space: Space, agent: Agent, *, models: int = 5) -> Mapping[str, Network]:
    """SAC's, and `models` members of dynamics."""
    critic = Mlp(space.observation + space.actions, 1, agent.width, agent.depth, agent.members, slow=True, twice=True)
    return {**sac.networks(space, agent), "critic": critic, "model": model.network(space, agent, models)}


def alike(params: Params, batch: Transitions) -> Tensor:
    """1/(K − 1) mean Σ_{i≠j} cos(∇_a Q_i, ∇_a Q_j): (S,). Its own gradient takes three passes more."""
    action = batch.action[:, None].expand(-1, params.networks["critic"].members, -1, -1).requires_grad_()
    seen = batch.observation[:, None].expand(*action.shape[:-1], -1)
    value = params("critic", seen, action)
    params.work.flop += 3 * 2 * params.networks["critic"].multiplications * value[0, ..., 0].numel()
    slope, = torch.autograd.grad(value.sum(), action, create_graph=True)
    unit = slope / (slope.norm(dim=-1, keepdim=True) + 1e-10)
    both = (unit.sum(1) ** 2).sum(-1) - (unit**2).sum((1, -1))
    return both.mean(-1) / max(action.shape[1] - 1, 1)      # one critic has no pairs


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, eta: float = 1.0, pessimism: str = "min"
) -> dict[str, Tensor]:
    """SAC's, and `eta` times how alike the critics' slopes are."""
    found = sac.losses(batch, target, params, luck, pessimism=pessimism)
    return {**found, "critic": found["critic"] + eta * alike(params, batch)} if eta else found


def agent(**changes: Any) -> Agent:
    return ModelBased(
        name="ravl", acts="continuous", networks=partial(networks, models=5),
        sample=partial(weighted, gamma=0.99, weighting="none", temperature=0.1),
        imagine=partial(model.imagined, gamma=0.99, horizon=5, real=0.05, doubtful=False),
        target=partial(model.target, rest=partial(sac.target, pessimism="min")),
        losses=partial(model.losses, rest=partial(losses, eta=1.0, pessimism="min")), explore=improve.by_policy,
        tempo=partial(tempo.model_first, fitted=1000, tau=0.005), members=10,
    ).but(**changes)
