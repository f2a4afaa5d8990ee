"""MOORL: each update adapts SAC to one of two sources, and moves the weights that serve both towards the adapted ones.

    D: the set or the run's own samples, with equal chance; θ' = θ after `steps` steps of size `inner` of SAC's losses
    on one batch of D        θ ← θ − Adam((θ − θ') / (steps · inner)),  θ: critics, actor and temperature

Chaudhary et al. 2025, arXiv:2506.09574, with Reptile's step (arXiv:1803.02999) given to Adam as a gradient; the paper
adds a share of θ' − θ. With one step it is SAC on batches of one source each. The target is that of θ in all steps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Params
from isocost.control.parts import tempo
from isocost.control.parts.mix import beside
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("MOORL", "2506.09574", 2025, "sac", "Weights between those adapted to a set and to samples serve both.")


@bounds(old="[0, 1]")
def sample(replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, old: float = 0.5) -> Transitions:
    """All rows of the set, with chance `old`, or all of the run's own samples."""
    new, past = (beside(replay, count, luck, gamma=gamma, old=share)[:5] for share in (0.0, 1.0))
    of_set = luck.uniform("source", 1) < old
    s, a, r, s2, discount = (torch.where(of_set[..., None] if x.dim() == 3 else of_set, y, x)
                             for x, y in zip(new, past, strict=True))
    return Transitions(s, a, r, s2, discount)


@bounds(steps="[1, inf)", inner="(0, inf)")
def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, steps: int = 4, inner: float = 1e-3
) -> dict[str, Tensor]:
    """SAC's before the inner steps by their values, with (θ − θ') / (steps · inner) as their gradients."""
    own = {k: x.detach() for k, x in params.weights.items()}
    moved, first = dict(own), dict[str, Tensor]()
    for _ in range(steps):
        live = {k: x.requires_grad_(k in params.due) for k, x in moved.items()}
        found = sac.losses(batch, target, Params(params.networks, live, params.due, params.work), luck)
        slopes = torch.autograd.grad(torch.stack(list(found.values())).sum(), [live[k] for k in found])
        moved |= {k: live[k].detach() - inner * g for k, g in zip(found, slopes, strict=True)}
        first = first or {k: x.detach() for k, x in found.items()}
    pulled = {k: (params.weights[k] * (own[k] - moved[k]) / (steps * inner)).sum((1, 2)) for k in first}
    return {k: first[k] + pulled[k] - pulled[k].detach() for k in first}


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="moorl", sample=partial(sample, gamma=0.99, old=0.5), losses=partial(losses, steps=4, inner=1e-3),
        tempo=partial(tempo.from_set, warmup=200, random=True, keeps=True)).but(**changes)
