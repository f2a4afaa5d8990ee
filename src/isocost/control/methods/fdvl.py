"""f-DVL: V is the dual of an imitation problem: a linear pull down and a conjugate that pulls up to Q.

    L_V = mean ((1 − λ) V(s) + λ f*(min_k Q'_k(s, a) − V(s)))       Q and policy as in IQL
    χ²: f*(y) = y + y²/4 for y > −2, else −1        total variation: f*(y) = max(y, 0)

    Sikchi et al. 2023, arXiv:2302.08560. f* is exact over weights w >= 0 of f(w) = (w − 1)²; a third-party form of χ²
    rises again below −4. `losses.divergence` chooses one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import iql
from isocost.control.networks import Params
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.errors import UserError
from isocost.found import Card

CARD = Card("f-DVL", "2302.08560", 2023, "iql", "Bounded conjugates learn an implicit maximum without exploding.")


def conjugate(y: Tensor, divergence: str) -> Tensor:
    """f*(y), of "chi2" or "tv". Raises UserError for another."""
    if divergence not in ("chi2", "tv"):
        raise UserError(f"divergence is {divergence!r}: expected chi2 or tv")
    return y.clamp(min=0) if divergence == "tv" else torch.where(y > -2, y + y * y / 4, -1.0)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, weight: float = 0.7, beta: float = 3.0,
    divergence: str = "chi2"
) -> dict[str, Tensor]:
    """IQL's, with the dual for V; `weight` is λ."""
    found = iql.losses(batch, target, params, luck, beta=beta)
    value = params("value", batch.observation)[:, 0, :, 0]
    return {**found, "value": ((1 - weight) * value + weight * conjugate(target[..., 1] - value, divergence)).mean(-1)}


def agent(**changes: Any) -> Agent:
    return iql.agent(
        name="fdvl", losses=partial(losses, weight=0.7, beta=3.0, divergence="chi2")).but(**changes)
