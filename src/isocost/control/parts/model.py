"""Learned dynamics: an ensemble says what follows a state and an action, and makes transitions by the policy.

    (Δ, r̂, c)_k = f_k(s, a),  ŝ'_k = s + Δ_k,  the episode goes on where c_k > 0
    L = Σ_k mean (Σ_d w_d (ŝ'_kd − s'_d)² + (r̂_k − r)² + CE(c_k, goes on)),  w = 1 or as given

Members differ by their first weights and learn from the same rows. Numbers are in the task's own units. A walk begins
in a state that was drawn, stays with one member, and begins again elsewhere where that member says that the episode
ends. One of its `horizon` steps, each with the same chance, becomes a row of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Params
from isocost.control.parts import backup, improve
from isocost.control.seams import Agent, Losses, Target
from isocost.control.types import Space, Transitions
from isocost.traits import bounds

NAMES = Transitions._fields[:5]     # of what was drawn, in `others`


def network(space: Space, agent: Agent, members: int, *, norm: bool = False) -> Mlp:
    """Of (s, a): the change of the state, the reward, and a logit that the episode goes on."""
    size = agent.width, agent.depth
    return Mlp(space.observation + space.actions, space.observation + 2, *size, members=members, norm=norm)


def told(params: Params, seen: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each member says of (S, B, ...): the state that follows, (S, K, B, O), the reward, and the logit."""
    made = params("model", seen, action)
    change, reward, on = made.split((seen.shape[-1], 1, 1), -1)
    return seen.unsqueeze(1) + change, reward[..., 0], on[..., 0]


def fitted(params: Params, batch: Transitions, weights: Tensor | float = 1.0) -> Tensor:
    """L, (S,). `weights` are (S, 1, B, O), one for each number of a state."""
    after, reward, on = told(params, batch.observation, batch.action)
    goes = (batch.discount > 0).float()[:, None].expand_as(on)
    error = (weights * (after - batch.following[:, None]) ** 2).sum(-1) + (reward - batch.reward[:, None]) ** 2
    return (error + binary_cross_entropy_with_logits(on, goes, reduction="none")).mean(-1).sum(1)


def doubt(after: Tensor) -> Tensor:
    """How far the members are apart, (S, K, B, O) -> (S, B): √ mean_d var_k."""
    return after.var(1, correction=0).mean(-1).sqrt()


def drawn(batch: Transitions) -> Transitions:
    """The rows of the replay, of a batch that `imagined` changed."""
    return Transitions._make([*(batch.others.get(k, x) for k, x in zip(NAMES, batch[:5], strict=True)), {}])


@bounds(real="[0, 1]", horizon="[1, inf)")
def imagined(
    batch: Transitions, params: Params, luck: Luck, *, gamma: float = 0.99, horizon: int = 5, real: float = 0.05,
    doubtful: bool = False
) -> Transitions:
    """All rows but a share `real` by walks of `horizon` steps of the tanh-Gaussian policy; as drawn while the model
    alone is trained. With `doubtful` a walk also ends behind a step whose `doubt` exceeds that of all drawn rows.

    What was drawn stays in `others`, by the names of the fields.
    """
    if "critic" not in params.due:
        return batch
    rows, size = batch.action.shape[1:]
    members = params.networks["model"].members
    which = (luck.uniform("member", rows) * members).long()[:, None]
    taken = (luck.uniform("step", rows) * horizon).long()
    made, at, limit = list(batch[:5]), batch.observation, None
    if doubtful:
        limit = doubt(told(params, batch.observation, batch.action)[0]).amax(-1, keepdim=True)
    for k in range(horizon):
        action, _ = improve.squashed(params, at, luck.normal(f"walk {k}", rows, size))
        each, rewards, ons = told(params, at, action)
        after = each.gather(1, which[..., None].expand(-1, -1, -1, each.shape[-1]))[:, 0]
        ended = ons.gather(1, which)[:, 0] <= 0
        now = (taken == k) & (torch.arange(rows) >= round(real * rows))
        found = at, action, rewards.gather(1, which)[:, 0], after, torch.where(ended, 0.0, gamma)
        made = [torch.where(now[..., None] if x.dim() == 3 else now, x, y) for x, y in zip(found, made, strict=True)]
        stopped = ended if limit is None else ended | (doubt(each) > limit)
        at = torch.where(stopped[..., None], batch.observation.roll(k + 1, 1), after)
    return Transitions._make([*made, {**batch.others, **dict(zip(NAMES, batch[:5], strict=True))}])


def of_drawn(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """L of the rows that were drawn."""
    return {"model": fitted(params, drawn(batch))}


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, rest: Target) -> Tensor:
    """That of `rest`; zeros while the model alone is trained."""
    return (rest if "critic" in params.due else backup.nothing)(batch, params, slow, luck)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, rest: Losses, own: Losses = of_drawn
) -> dict[str, Tensor]:
    """The model's and those of `rest`, where they are due."""
    found = rest(batch, target, params, luck) if "critic" in params.due else {}
    return {**found, **(own(batch, target, params, luck) if "model" in params.due else {})}
