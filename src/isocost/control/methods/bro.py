"""BRO-like SAC: regularised residual critics, weight decay and network resets, for many updates per sample.

    block(h) = h + LN(W₂ relu(LN(W₁ h))),   critic = W block(block(relu(LN(W₀ (s, a)))))
    y = r + γ ((Q'_1 + Q'_2)/2 − α log π(a'|s')),  AdamW with decay 1e-4, all networks reset every 2,500 updates

    Nauman et al. 2024, arXiv:2405.16158. Without its optimistic second actor and its quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import tempo
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("BRO-like", "2405.16158", 2024, "sac", "Regularised wide critics make updates per sample pay longer.")


def networks(space: Space, agent: Agent, *, decay: float = 1e-4) -> Mapping[str, Network]:
    """SAC's, with two residual blocks of two layers and LayerNorm in each critic and one in the actor."""
    shape = partial(Mlp, norm=True, residual=True, decay=decay)
    return {
        **sac.networks(space, agent),
        "actor": shape(space.observation, 2 * space.actions, agent.width, 1),
        "critic": shape(space.observation + space.actions, 1, agent.width, agent.depth, agent.members, slow=True),
    }


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """SAC's target with the mean of the critics: (S, B)."""
    return sac.target(batch, params, slow, luck, pessimism="mean")


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """SAC's, with the mean of the critics for the actor."""
    return sac.losses(batch, target, params, luck, pessimism="mean")


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="bro", networks=partial(networks, decay=1e-4), target=target, losses=losses,
        tempo=partial(tempo.steady, warmup=200, tau=0.005, reset_every=2500),   # the paper: by a table to 2 million
    ).but(**changes)
