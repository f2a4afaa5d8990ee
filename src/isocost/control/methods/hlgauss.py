"""HL-Gauss: the critic is a classifier over bins of the return, trained on a Gaussian around the target.

    p_j = Φ((e_{j+1} − y)/σ) − Φ((e_j − y)/σ), normalised,  σ = 0.75 bins
    L_Q = Σ_k mean CE(p, softmax Q_k(s, a)),  Q = Σ_j softmax_j · centre_j;  y and the actor as in SAC

    Farebrother et al. 2024, arXiv:2403.03950
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Network, Params
from isocost.control.parts import improve
from isocost.control.parts.heads import ReturnBins, cross_entropy
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("HL-Gauss", "2403.03950", 2024, "sac", "Cross-entropy over bins beats squared error on noisy targets.")


def networks(
    space: Space, agent: Agent, *, low: float = -700.0, high: float = 100.0, bins: int = 101
) -> Mapping[str, Network]:
    """SAC's, with `bins` logits for each critic. `low` and `high` must hold the discounted returns of the task."""
    critic = ReturnBins(space.observation + space.actions, bins, agent.width, agent.depth, agent.members, slow=True,
                  low=low, high=high)
    return {**sac.networks(space, agent), "critic": critic}


def head(params: Params) -> ReturnBins:
    found = params.networks["critic"]
    assert isinstance(found, ReturnBins)
    return found


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, ratio: float = 0.75) -> Tensor:
    """The mass of each bin around SAC's target: (S, B, bins)."""
    action, surprise = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    value = head(params).value(slow("critic", batch.following, action)).amin(1)
    y = batch.reward + batch.discount * (value - params.numbers("temperature").exp() * surprise)
    return head(params).gaussian(y, ratio)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Cross-entropy of each critic; SAC's actor and temperature, on the means of the bins."""
    logits = params("critic", batch.observation, batch.action)
    return {"critic": cross_entropy(target[:, None], logits).mean(-1).sum(1),
            **sac.improved(batch, params, luck, value=lambda q: head(params).value(q).amin(1))}


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="hlgauss", networks=partial(networks, low=-700.0, high=100.0, bins=101),   # of pendulum and mazes
        target=partial(target, ratio=0.75), losses=losses,
    ).but(**changes)
