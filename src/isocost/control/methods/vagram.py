"""VaGraM: the model's error in each number of a state is weighed by how much the value depends on that number.

    L_f = Σ_k mean (Σ_d (∂V/∂s'_d)² (ŝ'_kd − s'_d)² + (r̂_k − r)² + CE(c_k, goes on))
    V(s) = mean_k Q_k(s, π(s)),  its slope at the next state that was seen, shortened to the 0.95 quantile of the batch

Voelcker et al. 2022, arXiv:2204.01464, in MBPO, arXiv:1906.08253: SAC on rollouts of the model and rows of the replay.
The model is trained in the same updates as the critics. Left out: a Gaussian model and its choice of members, stretches
of training on held-out data, and rollouts that grow longer. The paper makes 20 updates per sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Network, Params
from isocost.control.parts import improve, model
from isocost.control.seams import Agent, ModelBased
from isocost.control.types import Space, Transitions
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("VaGraM", "2204.01464", 2022, "sac", "A model that is exact where the value depends on it is enough.")


@bounds(models="[1, inf)")
def networks(space: Space, agent: Agent, *, models: int = 3) -> Mapping[str, Network]:
    """SAC's, and `models` members of dynamics."""
    return {**sac.networks(space, agent), "model": model.network(space, agent, models)}


def slopes(params: Params, batch: Transitions, quantile: float) -> Tensor:
    """∂V/∂s' at the next states, (S, B, O), none longer than this quantile of the batch's lengths."""
    with torch.enable_grad():
        at = batch.following.detach().requires_grad_()
        action = torch.tanh(params.fixed("actor", at)[:, 0].chunk(2, -1)[0])
        value = params.fixed("critic", at, action)[..., 0].mean(1)
        slope, = torch.autograd.grad(value.sum(), at)
    length = slope.norm(dim=-1, keepdim=True)
    return slope * (length.quantile(quantile, 1, keepdim=True) / length.clamp(min=1e-10)).clamp(max=1)


@bounds(quantile="[0, 1]", valued="[0, inf)", plain="[0, inf)")
def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, quantile: float = 0.95, valued: float = 1.0,
    plain: float = 0.0
) -> dict[str, Tensor]:
    """SAC's, and the model's on the replayed rows, with weights `valued` (∂V/∂s')² + `plain`."""
    seen = model.replayed(batch)
    weights = plain + (valued * slopes(params, seen, quantile)[:, None] ** 2 if valued else 0.0)
    return {**sac.losses(batch, target, params, luck), "model": model.fitted(params, seen, weights)}


def agent(**changes: Any) -> Agent:
    made = sac.agent()
    return ModelBased(
        **{k: getattr(made, k) for k in ("acts", "sample", "target", "tempo")}, name="vagram",
        networks=partial(networks, models=3), explore=improve.by_policy,
        imagine=partial(model.imagined, gamma=0.99, horizon=1, real=0.5, doubtful=False),
        losses=partial(losses, quantile=0.95, valued=1.0, plain=0.0),
    ).but(**changes)
