"""ReCOIL: imitates the experts of a mixed set without rewards and without a discriminator.

    L_Q = Σ_k β mean_E (Q_k(s, π(s)) − Q_k(s, a)) + ¼ mean_mix (γ V(s') − Q_k(s, a))²,  mix: β of experts, 1 − β of all
    L_V = mean |τ − 1(u < 0)| u²,  u = min_k Q'_k(s, a) − V(s)      L_π = mean_mix min(exp(λ u), 100) |a − μ(s)|² / 2

Sikchi et al. 2023, arXiv:2302.08560, with f* of χ². E: the share `expert` of trajectories with the highest returns;
rewards serve for nothing else. The paper's (1 − γ) E Q(s₀, π) + γ E_E Q(s', π) is E_E Q(s, π), as the experts' states
follow one another. π learns by weights, V by expectiles. Left out: absorbing states behind an end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import iql
from isocost.control.networks import Params
from isocost.control.parts import backup
from isocost.control.parts.mix import last_rows, scores
from isocost.control.replay import Replay, gathered
from isocost.control.seams import Agent
from isocost.control.types import Transitions
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("ReCOIL", "2302.08560", 2023, "iql", "Experts are imitated better with a set of others beside them.")


def experts(replay: Replay, share: float) -> Tensor:
    """The rows of the best share of trajectories by return, at least of one: (n,)."""
    def made() -> Tensor:
        last, score = last_rows(replay), scores(replay, False)
        ends = last.unique()
        best = ends[score[ends].argsort(descending=True, stable=True)[: max(round(share * len(ends)), 1)]]
        return torch.isin(last, best).nonzero()[:, 0]
    found: Tensor = replay.once(("experts", share), made)
    return found


@bounds(expert="(0, 1]", beta="[0, 1]")
def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, expert: float = 0.1, beta: float = 0.5
) -> Transitions:
    """A share `beta` of rows of experts, first, and any rows of the set; "expert" is 1 for the first, (S, B)."""
    u, own = luck.uniform("replay", count), experts(replay, expert)
    first = (torch.arange(count) < round(beta * count)).expand_as(u)
    at = torch.where(first, own[(u * len(own)).long()], (u * replay.stored[0]).long())
    return gathered(replay, at, gamma=gamma)._replace(others={"expert": first.float()})


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """γ V(s'), and min_k Q'_k(s, a): (S, B, 2)."""
    return iql.target(batch._replace(reward=torch.zeros_like(batch.reward)), params, slow, luck)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, tau: float = 0.7, temperature: float = 3.0
) -> dict[str, Tensor]:
    """L_Q, and IQL's for V and π; `temperature` is λ."""
    with torch.no_grad():
        action = torch.tanh(params("actor", batch.observation)[:, 0])
    own = params("critic", batch.observation, batch.action)[..., 0]
    chosen = params("critic", batch.observation, action)[..., 0]
    away = batch.others["expert"][:, None] * (chosen - own) + (target[:, None, :, 0] - own) ** 2 / 4
    advantage = target[..., 1] - params("value", batch.observation)[:, 0, :, 0]
    mean = torch.tanh(params("actor", batch.observation)[:, 0])
    return {"critic": away.mean(-1).sum(1), "value": backup.expectile(advantage, tau).mean(-1),
            "actor": backup.imitated(backup.weight(advantage.detach(), temperature), mean, batch.action)}


def agent(**changes: Any) -> Agent:
    return iql.agent(
        name="recoil", sample=partial(sample, gamma=0.99, expert=0.1, beta=0.5), target=target,
        losses=partial(losses, tau=0.7, temperature=3.0)).but(**changes)
