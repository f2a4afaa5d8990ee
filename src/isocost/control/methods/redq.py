"""REDQ: ten critics; the target is the least of two that are drawn anew in every update.

    y = r + γ (min_{k ∈ M} Q'_k(s', a') − α log π(a'|s')),  M: 2 of 10
    L_π = mean (α log π(a|s) − (1/10) Σ_k Q_k(s, a)),  at 20 updates per sample

    Chen et al. 2021, arXiv:2101.05982
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Params
from isocost.control.parts import improve
from isocost.control.parts.heads import least_of
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.found import Card

CARD = Card("REDQ", "2101.05982", 2021, "sac", "An ensemble allows twenty updates per sample without overestimation.")


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, drawn: int = 2) -> Tensor:
    """SAC's target with the least of `drawn` critics, drawn for each run and update: (S, B)."""
    action, surprise = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    value = least_of(slow("critic", batch.following, action)[..., 0], drawn, luck)
    return batch.reward + batch.discount * (value - params.numbers("temperature").exp() * surprise)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """SAC's, with the mean of all critics for the actor."""
    return sac.losses(batch, target, params, luck, pessimism="mean")


def agent(**changes: Any) -> Agent:
    return sac.agent(name="redq", target=partial(target, drawn=2), losses=losses, members=10).but(**changes)
